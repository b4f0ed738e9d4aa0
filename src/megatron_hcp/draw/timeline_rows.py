"""The contents of a timeline of dynamic-CP plans: which ranks work on which sequences when, and which wait.

This module deals with no coordinates. Time is in estimated seconds, by the cost that a plan was made with. All plans
in a picture share one scale, so a worse plan is longer. The ideal is all work split evenly, without communication or
waiting.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from megatron_hcp.dcp import Group, MicroBatch, Plan, group_time
from megatron_hcp.dcp.policies import passes_of, peak_tokens, price_share, problems


class Bar(NamedTuple):
    """A group: ranks `first` to `first + size` work from `start` to `worked`, send until `end`, and wait until `until`.

    Communication hidden behind the work is not shown; `worked` to `end` is the exposed part.
    """

    micro_batch: int
    first: int
    size: int
    start: float
    worked: float
    end: float
    until: float
    cuts: tuple[float, ...]
    """Where one sequence ends and the next begins."""
    samples: tuple[int, ...]
    tokens: int


class Slot(NamedTuple):
    """A micro-batch; it lasts as long as its slowest group."""

    start: float
    end: float
    bars: tuple[Bar, ...]

    @property
    def sizes(self) -> dict[int, int]:
        """The number of groups of each size, widest first."""
        return dict(sorted(Counter(bar.size for bar in self.bars).items(), reverse=True))

    @property
    def area(self) -> float:
        """Seconds, summed over all ranks."""
        return (self.end - self.start) * sum(bar.size for bar in self.bars)

    @property
    def idle(self) -> float:
        """The share of rank time spent waiting."""
        return sum((bar.until - bar.end) * bar.size for bar in self.bars) / self.area if self.area else 0.0


class Timeline(NamedTuple):
    """One plan as a timeline."""

    plan: Plan
    slots: tuple[Slot, ...]
    ideal: float
    """Seconds that all the work would take if split evenly over the ranks."""
    peak: float
    """Peak padded tokens of a rank in a forward pass, as a multiple of M."""
    price: float
    """The price of groups wider than the sequences need, as a share of the work."""
    problems: tuple[str, ...]
    """Why the plan cannot run as it is."""

    @property
    def policy(self) -> str:
        return self.plan.policy

    @property
    def end(self) -> float:
        """When the last micro-batch ends; the pipeline bubble comes after it."""
        return self.slots[-1].end

    @property
    def bubble(self) -> float:
        """Seconds that pipeline stages are idle at the start and the end of the step."""
        return self.plan.metrics.estimated_s - self.end if self.plan.setup.pp > 1 else 0.0

    @property
    def idle(self) -> float:
        """The share of rank time before the bubble that is spent waiting."""
        area = sum(slot.area for slot in self.slots)
        return sum(slot.idle * slot.area for slot in self.slots) / area if area else 0.0

    @property
    def sent(self) -> float:
        """The share of rank time before the bubble that is exposed communication."""
        area = sum(slot.area for slot in self.slots)
        return (
            sum((bar.end - bar.worked) * bar.size for slot in self.slots for bar in slot.bars) / area if area else 0.0
        )


def timeline_of(plan: Plan) -> Timeline:
    """The plan in estimated seconds."""
    cost = plan.setup.cost
    slots, now = [], 0.0
    for number, batch in enumerate(plan.micro_batches):
        slots.append(_slot(number, batch, plan, now))
        now = slots[-1].end
    return Timeline(
        plan,
        tuple(slots),
        ideal=sum(map(cost.work, plan.lengths)) * cost.machine.unit_s / plan.world_size,
        peak=peak_tokens(plan) / plan.max_seqlen_per_rank,
        price=price_share(plan),
        problems=tuple(problems(plan)),
    )


def _slot(number: int, batch: MicroBatch, plan: Plan, now: float) -> Slot:
    bars = [_bar(number, group, plan, now) for group in batch.groups]
    end = max(bar.end for bar in bars)
    return Slot(now, end, tuple(bar._replace(until=end) for bar in bars))


def _bar(number: int, group: Group, plan: Plan, now: float) -> Bar:
    """The group's work, then its communication, after the fixed overhead of its forward passes."""
    cost, lengths = plan.setup.cost, plan.lengths
    passes = passes_of(plan.policy, group)
    worked = now + len(passes) * cost.machine.micro_batch_s
    sent = sum(group_time(one, lengths, plan.setup).exposed_s for one in passes)
    cuts = []
    for i in group.samples:
        worked += cost.work(lengths[i]) * cost.machine.unit_s / group.local_cp_size
        cuts.append(worked)
    tokens = sum(lengths[i] for i in group.samples)
    end = worked + sent
    return Bar(
        number, group.start, group.local_cp_size, now, worked, end, end, tuple(cuts[:-1]), group.samples, tokens
    )  # fmt: skip
