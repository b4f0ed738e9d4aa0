"""What a timeline of dynamic-CP plans shows: who works on which sequences when, and who waits. No coordinates here.

Time is in multiples of the ideal, total work / W: a plan that ends at 1.0 has no idle rank and no padding of time. All
plans of one picture have one scale, so the worse one is the longer one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hcp.core.dcp import Cost, Group, MicroBatch, Plan, padded_length


class Bar(NamedTuple):
    """A group at work: ranks `first` to `first + size`, from `start` to `end`; then it waits until `until`."""

    micro_batch: int
    first: int
    size: int
    start: float
    end: float
    until: float
    cuts: tuple[float, ...]
    """Where one sequence ends and the next begins."""
    samples: tuple[int, ...]
    tokens: int


class Slot(NamedTuple):
    """A micro-batch: its tallest group fills it."""

    start: float
    end: float
    bars: tuple[Bar, ...]

    @property
    def sizes(self) -> dict[int, int]:
        """How many groups there are of each size, the widest first."""
        return dict(sorted(Counter(bar.size for bar in self.bars).items(), reverse=True))

    @property
    def idle(self) -> float:
        """The part of the ranks' time that is waited."""
        area = (self.end - self.start) * sum(bar.size for bar in self.bars)
        return 1 - sum((bar.end - bar.start) * bar.size for bar in self.bars) / area if area else 0.0


class Timeline(NamedTuple):
    """One plan in time. `peak` is the most padded tokens of a rank in a micro-batch, in multiples of M."""

    policy: str
    plan: Plan
    slots: tuple[Slot, ...]
    peak: float

    @property
    def end(self) -> float:
        return self.slots[-1].end

    @property
    def idle(self) -> float:
        """The part of all ranks' time that is waited: 1 - 1 / imbalance."""
        return 1 - 1 / self.end if self.end else 0.0


def timeline_of(plan: Plan, cost: Cost, align: int = 1) -> Timeline:
    """The plan in time, in multiples of total work / W; align as in padded_length."""
    ideal = sum(map(cost.work, plan.lengths)) / plan.world_size or 1.0
    slots, now = [], 0.0
    for number, batch in enumerate(plan.micro_batches):
        slots.append(_slot(number, batch, plan, cost, ideal, now))
        now = slots[-1].end
    return Timeline(plan.policy, plan, tuple(slots), _peak(plan, align))


def _slot(number: int, batch: MicroBatch, plan: Plan, cost: Cost, ideal: float, now: float) -> Slot:
    works = [
        [cost.work(plan.lengths[i]) / group.local_cp_size / ideal for i in group.samples] for group in batch.groups
    ]
    end = now + max(map(sum, works))
    return Slot(now, end, tuple(_bar(number, group, work, plan, now, end) for group, work in zip(batch.groups, works)))


def _bar(number: int, group: Group, works: Sequence[float], plan: Plan, now: float, until: float) -> Bar:
    cuts, at = [], now
    for work in works:
        at += work
        cuts.append(at)
    tokens = sum(plan.lengths[i] for i in group.samples)
    return Bar(number, group.start, group.local_cp_size, now, at, until, tuple(cuts[:-1]), group.samples, tokens)


def _peak(plan: Plan, align: int) -> float:
    return (
        max(
            sum(padded_length(plan.lengths[i], group.local_cp_size, align) for i in group.samples) / group.local_cp_size
            for batch in plan.micro_batches
            for group in batch.groups
        )
        / plan.max_seqlen_per_rank
    )
