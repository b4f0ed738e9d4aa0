"""What a timeline of dynamic-CP plans shows: who works on which sequences when, and who waits. No coordinates here.

Time is estimated seconds, by the cost that a plan was made with. All plans of one picture have one scale, so the worse
one is the longer one. The ideal is all work shared evenly, with nothing to send and nobody who waits.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hcp.core.dcp import Group, MicroBatch, Plan, group_time
from hcp.core.dcp.policies import passes_of, peak_tokens, price_share, problems


class Bar(NamedTuple):
    """A group: ranks `first` to `first + size` work from `start` to `worked`, send until `end`, and wait until `until`.

    What it sends while it works is not seen; `worked` to `end` is what attention does not hide.
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
    """A micro-batch: its slowest group fills it."""

    start: float
    end: float
    bars: tuple[Bar, ...]

    @property
    def sizes(self) -> dict[int, int]:
        """How many groups there are of each size, the widest first."""
        return dict(sorted(Counter(bar.size for bar in self.bars).items(), reverse=True))

    @property
    def area(self) -> float:
        """Seconds of all ranks together."""
        return (self.end - self.start) * sum(bar.size for bar in self.bars)

    @property
    def idle(self) -> float:
        """The part of the ranks' time that is waited."""
        return sum((bar.until - bar.end) * bar.size for bar in self.bars) / self.area if self.area else 0.0


class Timeline(NamedTuple):
    """One plan in time."""

    plan: Plan
    slots: tuple[Slot, ...]
    ideal: float
    """Seconds of all work, shared evenly by all ranks."""
    peak: float
    """The most padded tokens of a rank in a forward pass, in multiples of M."""
    price: float
    """The price of wider groups than the sequences need, in parts of the work."""
    problems: tuple[str, ...]
    """Why the plan cannot run as it is."""

    @property
    def policy(self) -> str:
        return self.plan.policy

    @property
    def end(self) -> float:
        """Where the last micro-batch ends; the bubble of a pipeline comes after it."""
        return self.slots[-1].end

    @property
    def bubble(self) -> float:
        """Seconds that pipeline stages wait at the start and the end of the step."""
        return self.plan.metrics.estimated_s - self.end if self.plan.setup.pp > 1 else 0.0

    @property
    def idle(self) -> float:
        """The part of the ranks' time before the bubble that is waited."""
        area = sum(slot.area for slot in self.slots)
        return sum(slot.idle * slot.area for slot in self.slots) / area if area else 0.0

    @property
    def sent(self) -> float:
        """The part of the ranks' time before the bubble that is communication which attention does not hide."""
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
    """The group's work, then what it sends; the fixed seconds of its forward passes come first."""
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
