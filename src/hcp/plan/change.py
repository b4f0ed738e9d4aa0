"""What would change the answer: the nearest layout or job that fits, and the bandwidth at which another one wins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from hcp.plan.answer import Judged, judge
from hcp.plan.constants import Rates
from hcp.plan.layout import RECOMPUTE, Layout, PlanJob
from hcp.plan.model import PlanModel
from hcp.plan.search import search
from hcp.plan.space import Fixed, divisors
from hcp.plan.time.step import step_time

MOST_GPUS = 1 << 20
MOST_CHANGES = 40
"""Sequence lengths and batches that are tried where no layout is legal."""
REACH = 16.0
"""Bandwidths are tried up to this factor above and below those of the data sheet."""


def nearest(model: PlanModel, layout: Layout, job: PlanJob, rates: Rates) -> Judged | None:
    """The fastest legal layout that fits and differs from this one by one step of one axis; None without one."""
    tried = [judge(model, other, job, rates) for other in _neighbours(layout)]
    legal = [item for item in tried if item.fits and item.time]
    return min(legal, key=lambda item: item.time.seconds if item.time else 0.0, default=None)


def _neighbours(layout: Layout) -> Iterator[Layout]:
    for again in RECOMPUTE[RECOMPUTE.index(layout.recompute) + 1 :]:
        yield replace(layout, recompute=again)
    for axis in ("tp", "cp", "pp", "ep", "etp", "mbs", "vp"):
        size = getattr(layout, axis)
        for other in (2 * size, size // 2):
            if other and not (axis == "cp" and layout.hcp_sizes):
                yield replace(layout, **{axis: other})
    if layout.hcp_sizes:
        inner, outer = layout.hcp_sizes
        yield replace(layout, cp=2 * layout.cp, hcp_sizes=(inner, 2 * outer))


class Remedy(NamedTuple):
    """A change of what was asked after which a layout fits."""

    text: str
    layout: Layout


def remedy(model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed, legal: int = 1) -> Remedy | None:
    """The nearest change after which there is an answer; None without one.

    Without what is fixed; where no layout is legal (`legal` 0), another length or batch; then more GPUs.
    """
    if fixed:
        for name in fixed:
            rest = {key: value for key, value in fixed.items() if key != name}
            found = search(model, job, rates, rest, 1)
            if found.best:
                return Remedy(f"leave out --fix {name}", found.best[0].layout)
    if not legal:
        change = _other_job(model, job, rates, fixed)
        if change:
            return change
    more = job
    while more.world_size < MOST_GPUS and more.world_size < 1024 * job.world_size:
        more = replace(more, world_size=2 * more.world_size)
        grown = replace(more, global_batch=max(more.global_batch, 1))
        found = search(model, grown, rates, fixed, 1)
        if found.best:
            return Remedy(f"--gpus {more.world_size}", found.best[0].layout)
    return None


def _other_job(model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed) -> Remedy | None:
    """The sequence length or global batch nearest to what was asked with which a layout is legal and fits."""
    twos = [1 << power for power in range(1, (2 * job.world_size).bit_length() + 1)]
    jobs = [(f"--seq-length {n}", replace(job, seq_length=n)) for n in _multiples(job.seq_length, twos)]
    batches = _multiples(job.global_batch, divisors(job.world_size))
    jobs += [(f"--global-batch {n}", replace(job, global_batch=n)) for n in batches]

    def distance(change: tuple[str, PlanJob]) -> float:
        other = change[1]
        return abs(other.seq_length / job.seq_length - 1) + abs(other.global_batch / job.global_batch - 1)

    for text, other in sorted(jobs, key=distance)[:MOST_CHANGES]:
        found = search(model, other, rates, fixed, 1)
        for candidate in (found.best or found.marked)[:1]:
            return Remedy(text, candidate.layout)
    return None


def _multiples(number: int, units: Sequence[int]) -> list[int]:
    """For each unit its multiples next to the number.

    >>> _multiples(10, [2, 4])
    [8, 12]
    """
    rounded = [(number // unit * unit, -(-number // unit) * unit) for unit in units]
    return sorted({size for pair in rounded for size in pair} - {0, number})


class Flip(NamedTuple):
    """Where another layout overtakes the best: a link's bandwidth, in GB/s and per GPU, below or above `at`."""

    link: str
    side: str
    at: float
    now: float
    layout: Layout

    @property
    def text(self) -> str:
        """The flip in a line.

        >>> Flip("the network", "below", 12.34, 40.0, Layout(cp=8, cp_comm_type="a2a")).text
        'cp=8 a2a wins where the network sustains less than 12.3 GB/s (now 40)'
        """
        more = "less" if self.side == "below" else "more"
        return (
            f"{brief(self.layout)} wins where {self.link} sustains {more} than {self.at:.3g} GB/s (now {self.now:.3g})"
        )


def brief(layout: Layout) -> str:
    """The axes in use, in a few words.

    >>> brief(Layout(tp=2, cp=16, cp_comm_type="a2a+p2p", hcp_sizes=(8, 2), recompute="full"))
    'tp=2 cp=16 a2a+p2p 8,2 recompute=full'
    """
    words = [f"{axis}={size}" for axis in ("tp", "cp", "pp", "vp", "ep", "etp") if (size := getattr(layout, axis)) > 1]
    if layout.cp > 1:
        where = words.index(f"cp={layout.cp}") + 1
        sizes = f" {layout.hcp_sizes[0]},{layout.hcp_sizes[1]}" if layout.hcp_sizes else ""
        words.insert(where, layout.cp_comm_type + sizes)
    words += [f"mbs={layout.mbs}"] if layout.mbs > 1 else []
    words += [f"recompute={layout.recompute}"] if layout.recompute != "none" else []
    return " ".join(words) or "data parallel only"


def flips(model: PlanModel, best: Layout, others: Sequence[Layout], job: PlanJob, rates: Rates) -> list[Flip]:
    """For each other layout that overtakes the best at some bandwidth, the nearest such one."""
    found = []
    for other in others:
        flip = min(
            (flip for link in ("network", "nvlink") for flip in _crossings(model, best, other, job, rates, link)),
            key=lambda flip: max(flip.at / flip.now, flip.now / flip.at), default=None,
        )  # fmt: skip
        if flip is not None:
            found.append(flip)
    return found


def _crossings(model: PlanModel, best: Layout, other: Layout, job: PlanJob, rates: Rates, link: str) -> Iterator[Flip]:
    """Where the order changes below and above the present bandwidth."""
    now = getattr(rates, link)

    def lead(factor: float) -> float:
        changed = replace(rates, **{link: now * factor})
        return step_time(model, other, job, changed).seconds - step_time(model, best, job, changed).seconds

    if lead(1.0) <= 0:
        return
    for side, end in (("below", 1 / REACH), ("above", REACH)):
        if lead(end) >= 0:
            continue
        near, far = 1.0, end
        for _ in range(24):
            middle = (near * far) ** 0.5
            near, far = (middle, far) if lead(middle) > 0 else (near, middle)
        yield Flip("the network" if link == "network" else "NVLink", side, now * far / 1e9, now / 1e9, other)
