"""The fastest layouts that fit, out of all legal ones, without looking at most of them.

Work per GPU does not depend on PP and VP: a step takes at least the time of all layers' work, whatever the pipeline.
So the other axes are ordered by that bound, and pipelines are tried for the best of them only, until no bound is
below what has been found. Memory is computed for what comes first by time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from megatron_hcp.core import fits
from megatron_hcp.plan.constants import Rates
from megatron_hcp.plan.found import TIED, Candidate, Found, distinct
from megatron_hcp.plan.layout import Layout, PlanJob, overlaps_exchange
from megatron_hcp.plan.legal import forbidden
from megatron_hcp.plan.memory import is_tight, memory, usable_gib
from megatron_hcp.plan.memory.activations import layer_saved
from megatron_hcp.plan.memory.peak import stage_terms
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.space import Fixed, Space
from megatron_hcp.plan.time.layer import Work
from megatron_hcp.plan.time.parts import Mlp, joined
from megatron_hcp.plan.time.shapes import RankElements, weights_of
from megatron_hcp.plan.time.step import (
    data_parallel_seconds,
    micro_batch_seconds,
    sends_seconds,
    step_seconds,
    uncovered,
)
from megatron_hcp.plan.weights import LayerKinds, stage_kinds

WINDOW = 1.15
"""Layouts within this factor of the best are found; slower ones are not worth a picture."""
CHECKS_AFTER = 60
"""Memory of so many layouts more is computed once the best is known, for the others and the frontier."""
MOST_CHECKS = 4000
SMALLEST_STEP_GIB = 1.0
"""By how much less memory a slower layout must need to be on the frontier."""
GIB = float(1 << 30)
UNEVEN = 0.9
"""Chunks of a stage differ by a layer: the bound on activations counts so much of the even share."""


class _Choice(NamedTuple):
    """All axes but PP and VP, with what one micro-batch of it takes."""

    bound: float
    layout: Layout
    """Without EP and ETP."""
    ep: int
    etp: int
    dense: float
    moe: float
    extra: float
    moe_apart: float
    """With nothing beside EP's exchange, as in a pipeline without virtual stages."""
    extra_apart: float
    weights: RankElements
    saved_dense: float
    saved_moe: float


class _Pipeline(NamedTuple):
    pp: int
    vp: int
    batches: int
    """Micro-batches."""
    kinds: tuple[LayerKinds, ...]
    flight: float
    """Micro-batches whose activations the first stage holds."""


def search(model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed, few: int = 8) -> Found:
    """The best `few` distinct layouts that fit, or all tied with the fastest.

    Those that no measurement covers come only where there are no others.
    """
    found = Search(model, job, rates, fixed).run(few)
    if not (found.fitting or found.marked):
        beyond = Search(model, job, rates, fixed, covered=False).run(few)
        if beyond.fitting or beyond.marked or not found.least:
            return beyond
    return found


class Search:
    """One search; `run` does it. `covered`: only layouts that measured steps cover, unless an axis is given."""

    def __init__(self, model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed, covered: bool = True) -> None:
        self.model, self.job, self.rates = model, job, rates
        self.space = Space(model, job, fixed, covered)
        self.work = Work(model, job, rates)
        self.usable = usable_gib(job.gpu)
        self._mlps: dict[tuple[float, ...], Mlp] = {}
        self._pipelines: dict[tuple[int, int, int], list[_Pipeline]] = {}
        self._dp: dict[tuple[int, ...], tuple[float, float]] = {}
        self._lightest: tuple[float, float, _Choice, int, int] | None = None

    def run(self, few: int = 8) -> Found:
        """The best `few` distinct layouts that fit, or all tied with the fastest, and the frontier."""
        found, number = Found(), 0
        waiting: list[tuple[float, int, _Choice, int, int]] = []
        groups = sorted(self._groups(), key=lambda group: group.bound)
        found.legal = sum(len(self._pipelines_of(group)) for group in groups)
        picked = _Picked(self, found, few)
        for group in groups:
            while waiting and waiting[0][0] <= group.bound and not picked.is_done:
                picked.take(*heapq.heappop(waiting))
            if picked.is_done or group.bound > picked.limit:
                break
            for seconds, pp, vp in self._pipelined(group):
                if seconds <= picked.limit:
                    number += 1
                    heapq.heappush(waiting, (seconds, number, group, pp, vp))
        while waiting and not picked.is_done:
            picked.take(*heapq.heappop(waiting))
        if not (found.fitting or found.marked) and self._lightest is not None:
            _, seconds, group, pp, vp = self._lightest
            layout = _whole(group, pp, vp)
            found.least = Candidate(seconds, layout, memory(self.model, layout, self.job).peak)
        return found

    def is_any_legal(self) -> bool:
        """Whether some layout is legal, without a look at the others."""
        return any(self._pipelines_of(group) for group in self._groups())

    def _groups(self) -> Iterator[_Choice]:
        """Every choice of the axes that decide the work."""
        for attention in self.space.attention():
            grid = self.space.experts(attention)
            held = {(ep, etp): weights_of(self.model, replace(attention, ep=ep, etp=etp)) for ep, etp in grid}
            for mbs in self.space.micro_batches():
                layout = replace(attention, mbs=mbs)
                if "CP003" not in forbidden(self.model, layout, self.job):
                    yield from self._choices(layout, held)

    def _choices(self, layout: Layout, held: Mapping[tuple[int, int], RankElements]) -> Iterator[_Choice]:
        """Those with this attention and micro-batch: recomputation, and `held` weights by EP and ETP."""
        model, job, work, rates = self.model, self.job, self.work, self.rates
        experts = sum(model.is_moe)
        layers = len(model.is_moe) - experts
        front, output = work.front(layout), work.output(layout)
        mlp = work.dense(layout) if layers else None
        extra = output.total + model.mtp * work.mtp(layout, output).total if model.mtp else output.total
        share = job.global_batch * layout.tp * layout.cp / (layout.mbs * job.world_size)
        alone = rates.apart.exchanges
        for again in self.space.recompute():
            kept = replace(layout, recompute=again)
            base = joined(front, Mlp(0.0, 0.0), again, 0.0).total
            twice, passes = (4 / 3, 1.5) if again == "full" else (1.0, 1.0)
            ways = rates.exchanges if overlaps_exchange(model, kept) else alone
            dense = saved_dense = moe = apart = saved_moe = 0.0
            if mlp:
                dense = max(rates.host_dense_s, base + twice * (mlp.gemm + mlp.memory_bound))
                saved_dense = sum(layer_saved(model, kept, job, False).values())
            saved: dict[int, float] = {}
            for (ep, etp), weights in held.items():
                if experts:
                    gemm, memory_bound, exchange = self._experts(kept, ep, etp)
                    busy, local = base + twice * (gemm + memory_bound), model.sizes.experts // ep
                    moe, apart = (
                        min(max(rates.host_s(way, local), busy + passes * way.exposed * exchange) for way in of)
                        for of in (ways, alone)
                    )
                    if etp not in saved:
                        saved[etp] = sum(layer_saved(model, replace(kept, etp=etp), job, True).values())
                    saved_moe = saved[etp]
                more = extra + model.mtp * (moe if model.is_moe[-1] else dense)
                more_apart = more + model.mtp * (apart - moe) * model.is_moe[-1]
                bound = share * (layers * dense + experts * min(moe, apart) + min(more, more_apart))
                yield _Choice(
                    bound, kept, ep, etp, dense, moe, more, apart, more_apart, weights, saved_dense, saved_moe
                )

    def _experts(self, layout: Layout, ep: int, etp: int) -> Mlp:
        """The MLP of an MoE layer; few of the axes change it."""
        key = (layout.mbs / layout.cp, layout.tp, ep, etp)
        if key not in self._mlps:
            self._mlps[key] = self.work.experts(replace(layout, ep=ep, etp=etp))
        return self._mlps[key]

    def _pipelines_of(self, group: _Choice) -> list[_Pipeline]:
        """The legal pipelines under the other axes."""
        layout = group.layout
        key = (layout.tp * layout.cp, layout.mbs, group.ep * group.etp)
        if key not in self._pipelines:
            self._pipelines[key] = list(self._make_pipelines(layout, *key))
        return self._pipelines[key]

    def _make_pipelines(self, layout: Layout, ranks: int, mbs: int, experts: int) -> Iterator[_Pipeline]:
        job = self.job
        for pp, chunks in self.space.pipelines(layout):
            unit = mbs * (job.world_size // (ranks * pp))
            if job.world_size % (experts * pp) or job.global_batch % unit:
                continue
            count = job.global_batch // unit
            for vp in chunks:
                if vp > 1 and (pp == 1 or not fits.rounds_fit(count, pp)):
                    continue
                flight = float(min(count, pp))
                if vp > 1:
                    flight = UNEVEN * min(count, (2 * (pp - 1) + (vp - 1) * pp + 1) / vp)
                yield _Pipeline(pp, vp, count, stage_kinds(self.model, pp, vp), flight)

    def _pipelined(self, group: _Choice) -> Iterator[tuple[float, int, int]]:
        """(seconds, pp, vp) of each pipeline of the group that may fit."""
        model, job, rates, held, usable = self.model, self.job, self.rates, group.weights, self.usable * GIB
        layout, grid = group.layout, group.ep * group.etp
        held_bytes = 6 if job.fp32_gradients else 4  # a weight and its gradient, at least
        sends = sends_seconds(model, layout, job, rates)
        for pp, vp, count, kinds, flight in self._pipelines_of(group):
            first, routed = kinds[0]
            dense = first * held.dense + routed * held.moe + held.vocab
            state = dense * (held_bytes + 12 * layout.tp * pp / job.world_size) + routed * held.expert * (
                held_bytes + 12 * grid * pp / job.world_size
            )
            bytes_held = state + (first * group.saved_dense + routed * group.saved_moe) * flight
            if bytes_held > usable:
                self.remember(bytes_held, group.bound, group, pp, vp)
                continue
            moe, extra = (group.moe_apart, group.extra_apart) if pp > 1 and vp == 1 else (group.moe, group.extra)
            micro_batch, _ = micro_batch_seconds(kinds, group.dense, moe, extra)
            key = (layout.tp, layout.cp, group.ep, group.etp, pp, vp)
            if key not in self._dp:
                self._dp[key] = data_parallel_seconds(model, _whole(group, pp, vp), job, rates, held)
            sent, optimizer = self._dp[key]
            yield step_seconds(micro_batch, sent, optimizer, sends, rates, count=count, pp=pp, vp=vp), pp, vp

    def remember(self, bytes_held: float, seconds: float, group: _Choice, pp: int, vp: int) -> None:
        """Keeps the layout with the least memory of those that do not fit."""
        if self._lightest is None or bytes_held < self._lightest[0]:
            self._lightest = (bytes_held, seconds, group, pp, vp)


def _whole(group: _Choice, pp: int, vp: int) -> Layout:
    return replace(group.layout, pp=pp, vp=vp, ep=group.ep, etp=group.etp)


class _Picked:
    """Takes layouts by time, computes their memory, and keeps what a reader wants to see.

    Whatever is tied with the fastest is kept, so that which of them is the simplest does not depend on `few`.
    """

    def __init__(self, search: Search, found: Found, few: int) -> None:
        self.search, self.found, self.few = search, found, few
        self.limit = self._tied = float("inf")
        self._checks, self._after = 0, CHECKS_AFTER
        self._keys: set[tuple[object, ...]] = set()
        self._least = float("inf")

    @property
    def is_done(self) -> bool:
        return self._checks >= MOST_CHECKS or self._after <= 0

    def take(self, seconds: float, _: int, group: _Choice, pp: int, vp: int) -> None:
        """The next layout by time."""
        if seconds > self.limit:
            self._after = 0
            return
        layout, found = _whole(group, pp, vp), self.found
        key = distinct(layout)
        wanted = len(found.best) < self.few or seconds <= self._tied
        if not wanted and self._least < SMALLEST_STEP_GIB:
            self._after = 0
            return
        self._checks += 1
        model, job, usable = self.search.model, self.search.job, self.search.usable
        first = sum(stage_terms(model, layout, job, 0).values()) / GIB
        peak = first if first > usable else memory(model, layout, job).peak
        if peak > usable:
            self.search.remember(peak * GIB, seconds, group, pp, vp)
            return
        candidate = Candidate(seconds, layout, peak)
        if uncovered(model, layout):
            self._keep(found.marked, candidate, key)
            return
        if is_tight(peak, job.gpu):
            self._keep(found.tight, candidate, key)
            return
        if not found.best:
            self.limit, self._tied = seconds * WINDOW, seconds * (1 + TIED)
        else:
            self._after -= 1
        if key not in self._keys and wanted:
            found.best.append(candidate)
            self._keys.add(key)
        if peak < self._least - SMALLEST_STEP_GIB:
            found.frontier.append(candidate)
            self._least = peak

    def _keep(self, kept: list[Candidate], candidate: Candidate, key: tuple[object, ...]) -> None:
        """Keeps the fastest few of those that are not ranked, each set of axes once."""
        if len(kept) < self.few and all(distinct(other.layout) != key for other in kept):
            kept.append(candidate)
