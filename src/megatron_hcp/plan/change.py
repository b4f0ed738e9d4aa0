"""What would change the answer: the nearest layout or job that fits, and the bandwidth at which another one wins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from megatron_hcp.plan.answer import Judged, judge
from megatron_hcp.plan.constants import Rates
from megatron_hcp.plan.found import Found
from megatron_hcp.plan.layout import RECOMPUTE, Layout, PlanJob
from megatron_hcp.plan.memory import may_fit
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.search import Search, search
from megatron_hcp.plan.space import Fixed, divisors, parts_of
from megatron_hcp.plan.time.step import step_time, uncovered

MOST_GPUS, MOST_FACTOR = 1 << 20, 1024
"""GPUs that are tried where nothing fits, and how many times those that were asked for."""
MOST_CHANGES, MOST_PAIRED = 40, 4
"""Sequence lengths and batches that are tried where no layout is legal: one alone, and each with the other."""
_FACTORS = (2, 4, 8, 16, 32)
"""By how much one axis of a layout that does not fit is changed."""
REACH = 16.0
"""Bandwidths are tried up to this factor above and below those of the data sheet."""


def nearest(model: PlanModel, layout: Layout, job: PlanJob, rates: Rates) -> Judged | None:
    """The fastest legal layout that fits and differs from this one in one axis, by the smallest factor; or None."""
    for factor in _FACTORS:
        others = [other for other in _neighbours(layout, factor) if other.pp * other.vp <= parts_of(model)]
        tried = [judge(model, other, job, rates) for other in others]
        legal = [item for item in tried if item.fits and item.time]
        if legal:
            return min(legal, key=lambda item: item.time.seconds if item.time else 0.0)
    return None


def _neighbours(layout: Layout, factor: int) -> Iterator[Layout]:
    if factor == _FACTORS[0]:
        for again in RECOMPUTE[RECOMPUTE.index(layout.recompute) + 1 :]:
            yield replace(layout, recompute=again)
    for axis in ("tp", "cp", "pp", "ep", "etp", "mbs", "vp"):
        size = getattr(layout, axis)
        for other in (factor * size, size // factor):
            if other and not (axis == "cp" and layout.hcp_sizes):
                yield replace(layout, **{axis: other})
    if layout.hcp_sizes:
        inner, outer = layout.hcp_sizes
        yield replace(layout, cp=factor * layout.cp, hcp_sizes=(inner, factor * outer))


class Remedy(NamedTuple):
    """A change of what was asked after which a layout fits."""

    text: str
    layout: Layout


def remedy(model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed) -> Remedy | None:
    """The nearest change after which there is an answer; None without one, or where FSDP leaves open if one is needed.

    One thing is changed before two: without what is fixed, one axis or all; where no layout is legal, another length or
    batch; then more GPUs, then a shorter sequence. Last with both: without what is fixed, and another job.
    """
    if job.shards_weights and Search(model, job, rates, fixed, covered=False).is_any_legal():
        return None
    looser = list(_looser(fixed))
    for text, rest in looser:
        found = _search(model, job, rates, rest)
        if found.fitting:
            return Remedy(text, found.fitting[0].layout)
    for text, rest in [("", fixed), *looser]:
        for other in (_other_job, _more_gpus, _shorter):
            change = other(model, job, rates, rest)
            if change:
                return change._replace(text=f"{text} and take {change.text}" if text else change.text)
    return None


def _search(model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed) -> Found:
    """The best of the layouts that measured steps cover, and whether any is legal.

    No search where the weights alone exceed the memory of all GPUs, or what is fixed all measured steps.
    """
    if not may_fit(model, job):
        return Found()
    given = Layout(ep=fixed.get("ep", model.sizes.experts), etp=fixed.get("etp", 1))
    found = Found() if uncovered(model, given) else Search(model, job, rates, fixed, whole=False).run(1)
    found.legal = found.legal or Search(model, job, rates, fixed, covered=False).is_any_legal()
    return found


def _looser(fixed: Fixed) -> Iterator[tuple[str, Fixed]]:
    """What is fixed without each of its axes, and without all."""
    for name in fixed:
        yield f"leave out --hold {name}", {key: value for key, value in fixed.items() if key != name}
    if len(fixed) > 1:
        yield f"leave out --hold {' and '.join(fixed)}", {}


def _more_gpus(model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed) -> Remedy | None:
    """The least power of two times as many GPUs with which a layout fits; the batch grows along where it has to."""
    factor, least = 2, _divisible_batch(job)
    while factor <= MOST_FACTOR and job.world_size * factor <= MOST_GPUS:
        gpus, batch = job.world_size * factor, least * factor
        for text, more in (("", job), (f" --global-batch {batch}", replace(job, global_batch=batch))):
            found = _search(model, replace(more, world_size=gpus), rates, fixed)
            if found.fitting:
                return Remedy(f"--gpus {gpus}{text}", found.fitting[0].layout)
            if found.legal:
                break
        factor *= 2
    return None


def _divisible_batch(job: PlanJob) -> int:
    """The least batch from that of the job on which what is odd in the GPUs divides: often no axis but DP can."""
    odd = job.world_size // (job.world_size & -job.world_size)
    return -(-job.global_batch // odd) * odd


def _shorter(model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed) -> Remedy | None:
    """The longest sequence, halved again and again, with which a layout fits."""
    length, least = job.seq_length // 2, _divisible_batch(job)
    while length:
        for text, batch in (("", job.global_batch), (f" --global-batch {least}", least)):
            found = _search(model, replace(job, seq_length=length, global_batch=batch), rates, fixed)
            if found.fitting:
                return Remedy(f"--seq-length {length}{text}", found.fitting[0].layout)
        length //= 2
    return None


def _other_job(model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed) -> Remedy | None:
    """Where no layout is legal, the sequence length or global batch, or both, nearest to what was asked that fit."""
    if Search(model, job, rates, fixed, covered=False).is_any_legal():
        return None
    twos = [1 << power for power in range(1, (2 * job.world_size).bit_length() + 1)]
    lengths = sorted(_multiples(job.seq_length, twos), key=lambda size: abs(size - job.seq_length))
    batches = sorted(
        _multiples(job.global_batch, divisors(job.world_size)), key=lambda size: abs(size - job.global_batch)
    )
    jobs = [(f"--seq-length {n}", replace(job, seq_length=n)) for n in lengths]
    jobs += [(f"--global-batch {n}", replace(job, global_batch=n)) for n in batches]
    jobs = sorted(jobs, key=lambda change: _distance(job, change[1]))[:MOST_CHANGES]
    jobs += [
        (f"--seq-length {n} --global-batch {m}", replace(job, seq_length=n, global_batch=m))
        for n in lengths[:MOST_PAIRED]
        for m in batches[:MOST_PAIRED]
    ]
    for text, other in jobs:
        found = search(model, other, rates, fixed, 1, whole=False) if may_fit(model, other) else Found()
        for candidate in (found.fitting or found.marked)[:1]:
            return Remedy(text, candidate.layout)
    return None


def _distance(job: PlanJob, other: PlanJob) -> float:
    """By what parts of themselves the length and the batch change."""
    return abs(other.seq_length / job.seq_length - 1) + abs(other.global_batch / job.global_batch - 1)


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
        'close: cp=8 a2a is faster if the network sustains less than 12.3 GB/s (40 assumed)'
        """
        more = "less" if self.side == "below" else "more"
        rate = f"sustains {more} than {self.at:.3g} GB/s ({self.now:.3g} assumed)"
        return f"close: {brief(self.layout)} is faster if {self.link} {rate}"


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
