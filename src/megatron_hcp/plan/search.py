"""The fastest layouts that fit, out of all legal ones, without looking at most of them.

Work per GPU does not depend on PP and VP: a step takes at least the time of all layers' work, whatever the pipeline.
So the other axes are ordered by that bound, and pipelines are tried for the best of them only, until no bound is
below what has been found. Memory is computed for what comes first by time. Before any time, what a layout holds at
least is set against the GPU: neither how attention is exchanged nor, mostly, its levels change it, so that one sum
stands for many layouts, and those that cannot fit get no time at all.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from megatron_hcp.core import fits
from megatron_hcp.plan.constants import Rates
from megatron_hcp.plan.found import Candidate, Found, Picked
from megatron_hcp.plan.layout import Layout, PlanJob, overlaps_exchange
from megatron_hcp.plan.memory import memory, usable_gib
from megatron_hcp.plan.memory.activations import layer_saved
from megatron_hcp.plan.memory.least import LeastPeak, Saved, Stages, StagesThatFit, room_of
from megatron_hcp.plan.memory.peak import GIB
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.space import Fixed, Space
from megatron_hcp.plan.time.layer import Work
from megatron_hcp.plan.time.parts import Front, LayerSeconds, Mlp, joined
from megatron_hcp.plan.time.shapes import RankElements, weights_of
from megatron_hcp.plan.time.step import (
    data_parallel_seconds,
    micro_batch_seconds,
    sends_seconds,
    step_seconds,
)
from megatron_hcp.plan.weights import unlike_stages

UNEVEN = 0.9
"""Chunks of a stage differ by a layer: the bound on activations counts so much of the even share."""


class _Parts:
    """What a micro-batch takes with this attention and micro-batch, computed once somebody asks."""

    def __init__(self, work: Work, layout: Layout) -> None:
        self.work, self.layout = work, layout

    @cached_property
    def front(self) -> Front:
        return self.work.front(self.layout)

    @cached_property
    def dense(self) -> Mlp:
        return self.work.dense(self.layout)

    @cached_property
    def output(self) -> LayerSeconds:
        return self.work.output(self.layout)

    @cached_property
    def extra(self) -> float:
        """Beside the layers."""
        mtp = self.work.model.mtp
        return self.output.total + mtp * self.work.mtp(self.layout, self.output).total if mtp else self.output.total


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
    pipelines: tuple[Stages, ...]
    """Those that may fit."""


def search(model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed, few: int = 8, whole: bool = True) -> Found:
    """The best `few` distinct layouts that fit, or all tied with the fastest; not `whole`: see `Search`.

    Those that no measurement covers come only where there are no others.
    """
    found = Search(model, job, rates, fixed, whole=whole).run(few)
    if not (found.fitting or found.marked):
        beyond = Search(model, job, rates, fixed, covered=False, whole=whole).run(few)
        if beyond.fitting or beyond.marked or not found.least:
            return beyond
    return found


class Search:
    """One search; `run` does it. `covered`: only layouts that measured steps cover, unless an axis is given.

    Not `whole`: the fastest alone is asked for, and not what needs the least memory, so that more is passed over.
    """

    def __init__(
        self, model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed, covered: bool = True, whole: bool = True
    ) -> None:  # fmt: skip
        self.model, self.job, self.rates, self.whole = model, job, rates, whole
        self.space = Space(model, job, fixed, covered)
        self.work = Work(model, job, rates)
        self.usable = usable_gib(job.gpu) * GIB
        self._mlps: dict[tuple[float, ...], Mlp] = {}
        self._held: dict[int, dict[tuple[int, int], RankElements]] = {}
        self._pipelines: dict[tuple[int, int, int], list[Stages]] = {}
        self._rooms: dict[tuple[object, ...], StagesThatFit] = {}
        self._dp: dict[tuple[int, ...], tuple[float, float]] = {}
        self._legal = 0
        self._least = float("inf")
        self._lightest: list[Callable[[], tuple[_Choice, Stages]]] = []
        """Of the layouts that cannot fit, those that hold the least bytes."""

    def run(self, few: int = 8) -> Found:
        """The best `few` distinct layouts that fit, or all tied with the fastest, and the frontier."""
        found, number = Found(), 0
        waiting: list[tuple[float, int, _Choice, int, int]] = []
        groups = sorted(self._groups(), key=lambda group: group.bound)
        found.legal = self._legal
        picked = Picked(self.model, self.job, found, few, first=not self.whole)

        def take_next() -> None:
            seconds, _, group, pp, vp = heapq.heappop(waiting)
            picked.take(seconds, _whole(group, pp, vp))

        for group in groups:
            while waiting and waiting[0][0] <= group.bound and not picked.is_done:
                take_next()
            if picked.is_done or group.bound > picked.limit:
                break
            for seconds, pp, vp in self._pipelined(group):
                if seconds <= picked.limit:
                    number += 1
                    heapq.heappush(waiting, (seconds, number, group, pp, vp))
        while waiting and not picked.is_done:
            take_next()
        if self.whole and not (found.fitting or found.marked):
            found.least = self._lightest_of(picked.lightest)
        return found

    def _lightest_of(self, checked: Candidate | None) -> Candidate | None:
        """The layout with the least memory: `checked`, or one of those that cannot fit; of equals the fastest."""
        if checked is not None and checked.peak_gib * GIB <= self._least:
            return checked._replace(peak_gib=memory(self.model, checked.layout, self.job).peak)
        if not self._lightest:
            return None
        group, pipeline = min((made() for made in self._lightest), key=lambda pair: pair[0].bound)
        layout = _whole(group, pipeline.pp, pipeline.vp)
        return Candidate(group.bound, layout, memory(self.model, layout, self.job).peak)

    def is_any_legal(self) -> bool:
        """Whether some layout is legal, without a look at the others."""
        return any(grid for _, grid in self._grids())

    def _grids(self) -> Iterator[tuple[Layout, dict[tuple[int, int], list[Stages]]]]:
        """Every attention and micro-batch, with the legal pipelines for EP and ETP, where there are any."""
        for attention in self.space.attention():
            experts, ranks = list(self.space.experts(attention)), attention.tp * attention.cp
            for mbs in self.space.micro_batches():
                if not self.space.blocks_fit(attention.cp, mbs):
                    continue
                layout = replace(attention, mbs=mbs)
                grid = {(ep, etp): self._pipelines_of(layout, ranks, mbs, ep * etp) for ep, etp in experts}
                yield layout, {sizes: pipelines for sizes, pipelines in grid.items() if pipelines}

    def _groups(self) -> Iterator[_Choice]:
        """Every choice of the axes that decide the work, with a pipeline that may fit."""
        for layout, grid in self._grids():
            parts, recompute = _Parts(self.work, layout), self.space.recompute()
            self._legal += len(recompute) * sum(map(len, grid.values()))
            for again in recompute:
                yield from self._choices(parts, replace(layout, recompute=again), grid)

    def _choices(self, parts: _Parts, kept: Layout, grid: Mapping[tuple[int, int], list[Stages]]) -> Iterator[_Choice]:
        """Those with this attention, micro-batch and recomputation."""
        model, job, held = self.model, self.job, self._held.setdefault(kept.tp, {})
        has_dense, has_experts = not all(model.is_moe), any(model.is_moe)
        saved_dense = sum(layer_saved(model, kept, job, False).values()) if has_dense else 0.0
        saved_moe: dict[int, float] = {}
        for (ep, etp), pipelines in grid.items():
            whole = replace(kept, ep=ep, etp=etp)
            if (ep, etp) not in held:
                held[ep, etp] = weights_of(model, whole)
            if etp not in saved_moe:
                saved_moe[etp] = sum(layer_saved(model, whole, job, True).values()) if has_experts else 0.0
            saved = saved_dense, saved_moe[etp]
            key = (kept.tp, kept.cp, kept.mbs, ep, etp, kept.cp_comm_type * (kept.recompute == "full"), *saved)
            room = self._rooms.get(key)
            if room is None:
                room = self._rooms[key] = self._room(whole, held[ep, etp], pipelines, saved)
            if room.lightest is not None and room.least <= self._least:
                self._remember(room.least, room.lightest, parts, kept, ep, etp)
            if room.fitting:
                yield self._choice(parts, kept, ep, etp, room.fitting)

    def _remember(self, least: float, lightest: Stages, parts: _Parts, kept: Layout, ep: int, etp: int) -> None:
        """Keeps the layouts with the least memory of those that cannot fit."""
        if least < self._least:
            self._least, self._lightest = least, []
        self._lightest.append(lambda: (self._choice(parts, kept, ep, etp, ()), lightest))

    def _room(self, layout: Layout, weights: RankElements, pipelines: list[Stages], saved: Saved) -> StagesThatFit:
        """Which pipelines may fit where a layer keeps so many bytes of a micro-batch."""
        room = room_of(pipelines, layout, weights, saved, job=self.job, usable=self.usable)
        if self.whole or not room.fitting:
            return room
        least = LeastPeak(self.model, self.job, layout, saved)
        return room._replace(fitting=tuple(pipeline for pipeline in room.fitting if least(pipeline) <= self.usable))

    def _choice(self, parts: _Parts, kept: Layout, ep: int, etp: int, pipelines: tuple[Stages, ...]) -> _Choice:
        """What a micro-batch takes with these axes."""
        model, job, rates, again = self.model, self.job, self.rates, kept.recompute
        layers, experts = model.layers
        share = job.global_batch * kept.tp * kept.cp / (kept.mbs * job.world_size)
        alone = rates.apart.exchanges
        base = joined(parts.front, Mlp(0.0, 0.0), again, 0.0).total
        twice, passes = (4 / 3, 1.5) if again == "full" else (1.0, 1.0)
        dense = moe = apart = 0.0
        if layers:
            mlp = parts.dense
            dense = max(rates.host_dense_s, base + twice * (mlp.gemm + mlp.memory_bound))
        if experts:
            ways = rates.exchanges if overlaps_exchange(model, kept) else alone
            gemm, memory_bound, exchange = self._experts(kept, ep, etp)
            busy, local = base + twice * (gemm + memory_bound), model.sizes.experts // ep
            moe, apart = (
                min(max(rates.host_s(way, local), busy + passes * way.exposed * exchange) for way in of)
                for of in (ways, alone)
            )
        more = parts.extra + model.mtp * (moe if model.is_moe[-1] else dense)
        more_apart = more + model.mtp * (apart - moe) * model.is_moe[-1]
        bound = share * (layers * dense + experts * min(moe, apart) + min(more, more_apart))
        weights = self._held[kept.tp][ep, etp]
        return _Choice(bound, kept, ep, etp, dense, moe, more, apart, more_apart, weights, pipelines)

    def _experts(self, layout: Layout, ep: int, etp: int) -> Mlp:
        """The MLP of an MoE layer; few of the axes change it."""
        key = (layout.mbs / layout.cp, layout.tp, ep, etp)
        if key not in self._mlps:
            self._mlps[key] = self.work.experts(replace(layout, ep=ep, etp=etp))
        return self._mlps[key]

    def _pipelines_of(self, layout: Layout, ranks: int, mbs: int, experts: int) -> list[Stages]:
        """The legal pipelines under the other axes; `ranks` of attention and `experts` of their grid."""
        key = (ranks, mbs, experts)
        if key not in self._pipelines:
            self._pipelines[key] = (
                list(self._make_pipelines(layout, ranks, mbs))
                if experts == 1
                else [
                    pipeline
                    for pipeline in self._pipelines_of(layout, ranks, mbs, 1)
                    if self.job.world_size % (experts * pipeline.pp) == 0
                ]
            )
        return self._pipelines[key]

    def _make_pipelines(self, layout: Layout, ranks: int, mbs: int) -> Iterator[Stages]:
        job = self.job
        for pp, chunks in self.space.pipelines(layout):
            unit = mbs * (job.world_size // (ranks * pp))
            if job.global_batch % unit:
                continue
            count = job.global_batch // unit
            for vp in chunks:
                if vp > 1 and (pp == 1 or not fits.rounds_fit(count, pp)):
                    continue
                flight = float(min(count, pp))
                if vp > 1:
                    flight = UNEVEN * min(count, (2 * (pp - 1) + (vp - 1) * pp + 1) / vp)
                yield Stages(pp, vp, count, unlike_stages(self.model, pp, vp), flight)

    def _pipelined(self, group: _Choice) -> Iterator[tuple[float, int, int]]:
        """(seconds, pp, vp) of each pipeline of the group that may fit."""
        model, job, rates, layout = self.model, self.job, self.rates, group.layout
        sends = sends_seconds(model, layout, job, rates)
        for pp, vp, count, kinds, _ in group.pipelines:
            moe, extra = (group.moe_apart, group.extra_apart) if pp > 1 and vp == 1 else (group.moe, group.extra)
            micro_batch, _ = micro_batch_seconds(kinds, model.layers, pp, dense=group.dense, moe=moe, extra=extra)
            key = (layout.tp, layout.cp, group.ep, group.etp, pp, vp)
            if key not in self._dp:
                self._dp[key] = data_parallel_seconds(model, _whole(group, pp, vp), job, rates, group.weights)
            sent, optimizer = self._dp[key]
            yield step_seconds(micro_batch, sent, optimizer, sends, rates, count=count, pp=pp, vp=vp), pp, vp


def _whole(group: _Choice, pp: int, vp: int) -> Layout:
    return replace(group.layout, pp=pp, vp=vp, ep=group.ep, etp=group.etp)
