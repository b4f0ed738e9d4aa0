"""The peak of allocated memory on each pipeline stage, and what of a GPU's memory it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from megatron_hcp.cost.gpus import Gpu
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.memory.activations import layer_saved
from megatron_hcp.plan.memory.buffers import (
    cp_buffers,
    dummy_gradients,
    layer_transient,
    output_end,
    userbuffers,
    workspaces,
)
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.weights import LayerKinds, chunk_kinds, parameters, stage_kinds

GIB = float(1 << 30)
_COPIES = {"bf16": 0, "fp8": 2, "mxfp8": 2, "nvfp4": 1}
"""Bytes of a weight as GEMMs read it, by row and by column; beside it stands the bf16 one where it is kept."""
_RESERVED = 1.0
"""GiB of CUDA's context, and of NCCL's buffers, at the least. Published layouts leave no more: Llama2-7B at 4K tokens
ran at 72 of 79 GiB, which a margin of 12 % calls impossible."""

MEMORY_ERROR = 0.008
"""How far a peak may be off: no measured one is by more. The fullest published layout that ran and fits by this count
takes 98.9 % of what torch may allocate."""

_EVEN = 0.9
"""Sizes that do not divide are rounded down: what a rank holds is no less than so much of the even share."""


@dataclass(frozen=True)
class PlanMemory:
    """Peak of torch's allocated memory. `terms`: GiB of the fullest stage, which sum to `peak`; `by_stage`: GiB."""

    terms: Mapping[str, float]
    stage: int
    peak: float
    by_stage: tuple[float, ...]


def is_tight(peak_gib: float, gpu: Gpu) -> bool:
    """Whether that peak is as near to the end of the GPU's memory as it may be off."""
    return peak_gib * (1 + MEMORY_ERROR) > usable_gib(gpu)


def usable_gib(gpu: Gpu) -> float:
    """GiB of a GPU that torch may allocate: the memory that it reports, less CUDA's context and NCCL's buffers.

    >>> from megatron_hcp.cost.gpus import gpu_named
    >>> round(usable_gib(gpu_named("h100")), 1)
    78.6
    """
    return (gpu.reported_mib * float(1 << 20) or gpu.memory_bytes) / GIB - _RESERVED


def memory(model: PlanModel, layout: Layout, job: PlanJob) -> PlanMemory:
    """The peak of each stage, and the terms of the fullest one."""
    parts = Parts(model, layout, job)
    totals = [parts.total(stage) for stage in range(layout.pp)]
    fullest = totals.index(max(totals))
    terms = {name: value / GIB for name, value in parts.terms(fullest).items() if value}
    return PlanMemory(terms, fullest, totals[fullest] / GIB, tuple(total / GIB for total in totals))


def checked_peak(model: PlanModel, layout: Layout, job: PlanJob, most: float) -> float:
    """GiB of the fullest stage; of the first one, which is mostly that, where it is beyond `most` already."""
    parts = Parts(model, layout, job)
    first = parts.total(0) / GIB
    if first > most:
        return first
    others = fullest_stages(model, layout.pp, layout.vp, job.block_layers)
    return max(first, *(parts.total(stage) / GIB for stage in others), 0.0)


@lru_cache(maxsize=4096)
def fullest_stages(model: PlanModel, pp: int, vp: int, block_layers: int | None) -> tuple[int, ...]:
    """Stages after the first of which one is the fullest of them: of those with the same layers, the first.

    A later one has the same weights and no more micro-batches in flight. The last stage stands for itself.
    """
    kinds = zip(chunk_kinds(model, pp, vp), chunk_kinds(model, pp, vp, block_layers))
    alike: dict[object, int] = {}
    for stage, layers in enumerate(kinds):
        if stage:
            alike.setdefault(None if stage == pp - 1 else layers, stage)
    return tuple(alike.values())


def stage_terms(model: PlanModel, layout: Layout, job: PlanJob, stage: int) -> dict[str, float]:
    """Bytes of one stage at its peak, by term."""
    return Parts(model, layout, job).terms(stage)


def may_fit(model: PlanModel, job: PlanJob) -> bool:
    """Whether weights, gradients and optimizer fit where all GPUs share them evenly; if not, no layout fits.

    No layout shares more: the ranks of one part of the model are at most all GPUs, and some stage holds the mean.
    """
    held = sum(held_bytes(job)) + job.optimizer_bytes
    return _EVEN * held * sum(parameters(model, Layout(), 0)) <= job.world_size * usable_gib(job.gpu) * GIB


def held_bytes(job: PlanJob) -> tuple[int, int]:
    """Bytes of a weight and of its gradient."""
    gathered = job.fp8_weights and job.precision in ("fp8", "mxfp8")
    return _COPIES[job.precision] + (0 if gathered else 2), 4 if job.fp32_gradients else 2


@lru_cache(maxsize=4096)
def _states(
    model: PlanModel, tp: int, ep: int, etp: int, pp: int, vp: int, weight: int, gradient: int, optimizer: int,
    shards: tuple[int, int],
) -> tuple[tuple[dict[str, float], float], ...]:  # fmt: skip
    """For each stage, the bytes that stay through the whole step, by term and together.

    `weight`, `gradient`, `optimizer`: bytes of one; `shards`: of the optimizer, for dense weights and experts.
    """
    layout = Layout(tp=tp, ep=ep, etp=etp, pp=pp, vp=vp)
    alike: dict[object, tuple[dict[str, float], float]] = {}
    found = []
    for stage, kinds in enumerate(stage_kinds(model, pp, vp)):
        key = kinds, stage == 0, stage == pp - 1
        if key in alike:
            found.append(alike[key])
            continue
        held = parameters(model, layout, stage)
        terms = {
            "weights": float(weight * sum(held)),
            "gradients": float(gradient * sum(held)),
            "optimizer": optimizer * (held.dense / shards[0] + held.expert / shards[1]),
            "dummy gradients": dummy_gradients(model, layout, stage),
            "workspaces": workspaces(model),
        }
        alike[key] = terms, sum(terms.values())
        found.append(alike[key])
    return tuple(found)


class _SavedOfLayer(NamedTuple):
    """Bytes that a layer keeps, by term and together."""

    terms: Mapping[str, float]
    together: float


class _KeptLayers(NamedTuple):
    """Layers of each stage, by chunk and kind, with what a dense one and one with experts keeps."""

    kinds: tuple[tuple[LayerKinds, ...], ...]
    saved: tuple[_SavedOfLayer, _SavedOfLayer]


class Parts:
    """What the stages of a layout have in common: bytes of a parameter, of a layer's activations, at the peak."""

    def __init__(self, model: PlanModel, layout: Layout, job: PlanJob, output: float | None = None) -> None:
        """`output`: bytes at the head of the last stage, where it is not pre-training's."""
        self.model, self.layout, self.job = model, layout, job
        self.kept = _kept(model, layout, job)
        self.micro_batches = job.micro_batches(layout)
        shards = (max(1, job.dp(layout) * layout.cp), max(1, job.edp(layout))) if job.sharded_optimizer else (1, 1)
        sizes = layout.tp, layout.ep, layout.etp, layout.pp, layout.vp
        self.states = _states(model, *sizes, *held_bytes(job), job.optimizer_bytes, shards)
        self.inside = {
            "layer backward": layer_backward(model, layout, job), "CP buffers": cp_buffers(model, layout, job),
        }  # fmt: skip
        self.output = output_end(model, layout, job) if output is None else output
        self.userbuffers = userbuffers(model, layout, job)

    def held(self, stage: int) -> list[tuple[int, _SavedOfLayer]]:
        """Layers whose activations the stage holds at its fullest, of all micro-batches in flight, with those of one.

        Multi-token prediction counts as the last part's: block recomputation leaves it out.
        """
        flights = in_flight(self.layout, self.micro_batches, stage)
        found: list[tuple[int, _SavedOfLayer]] = []
        for part in self.kept:
            counts = [0, 0]
            for layers, flying in zip(part.kinds[stage], flights):
                counts[False] += layers.dense * flying
                counts[True] += layers.moe * flying
            if stage == self.layout.pp - 1 and part is self.kept[-1]:
                counts[bool(self.model.sizes.experts)] += self.model.mtp * flights[-1]
            found += zip(counts, part.saved)
        return found

    def transients(self, stage: int) -> dict[str, float]:
        """Bytes that come and go; the largest of them decides."""
        return {**self.inside, "output end": self.output} if stage == self.layout.pp - 1 else self.inside

    def total(self, stage: int) -> float:
        """The sum of `terms`."""
        kept = sum(count * saved.together for count, saved in self.held(stage))
        return self.states[stage][1] + self.userbuffers + kept + max(self.transients(stage).values())

    def terms(self, stage: int) -> dict[str, float]:
        """Bytes of the stage at its peak."""
        terms = {**self.states[stage][0], "userbuffers": self.userbuffers}
        for count, saved in self.held(stage):
            for name, size in saved.terms.items() if count else ():
                terms[f"kept: {name}"] = terms.get(f"kept: {name}", 0.0) + count * size
        transients = self.transients(stage)
        largest = max(transients, key=lambda name: transients[name])
        return {**terms, largest: transients[largest]}


def _kept(model: PlanModel, layout: Layout, job: PlanJob) -> tuple[_KeptLayers, ...]:
    """What layers keep; with block recomputation those that are repeated apart from the others."""
    pp, vp, is_full = layout.pp, layout.vp, layout.recompute == "full"
    unit = _unit(model, layout, job) if is_full and job.block_layers is None else 1
    saved = _saved(model, layout, job, unit)
    if not is_full or job.block_layers is None:
        return (_KeptLayers(chunk_kinds(model, pp, vp), saved),)
    whole, again = chunk_kinds(model, pp, vp), chunk_kinds(model, pp, vp, job.block_layers)
    others = tuple(
        tuple(LayerKinds(a.dense - b.dense, a.moe - b.moe) for a, b in zip(*chunks)) for chunks in zip(whole, again)
    )
    return _KeptLayers(again, saved), _KeptLayers(others, _saved(model, replace(layout, recompute="none"), job, 1))


def _saved(model: PlanModel, layout: Layout, job: PlanJob, unit: int) -> tuple[_SavedOfLayer, _SavedOfLayer]:
    """What a layer of each kind keeps; of `unit` layers that are recomputed together one input is."""
    dense, moe = (
        {name: size / unit for name, size in layer_saved(model, layout, job, kind).items()} for kind in (False, True)
    )
    return _SavedOfLayer(dense, sum(dense.values())), _SavedOfLayer(moe, sum(moe.values()))


def _unit(model: PlanModel, layout: Layout, job: PlanJob) -> int:
    """Layers that uniform recomputation repeats at once: no more than a chunk has."""
    return min(job.unit_layers, _longest_chunk(model, layout.pp, layout.vp))


@lru_cache(maxsize=4096)
def _longest_chunk(model: PlanModel, pp: int, vp: int) -> int:
    return max(sum(chunk) for stage in chunk_kinds(model, pp, vp) for chunk in stage)


def layer_backward(model: PlanModel, layout: Layout, job: PlanJob) -> float:
    """The widest layer's backward pass; with full recomputation all that the layers of a unit keep comes back first.

    With block recomputation it takes the place of what the chunk's last layers kept, if there are any: their backward
    pass is over by then.
    """
    transient = layer_transient(model, layout, job)
    if layout.recompute == "full":
        whole = replace(layout, recompute="none")
        again = _unit(model, layout, job)
        if job.block_layers is not None:
            again = int(job.block_layers >= _longest_chunk(model, layout.pp, layout.vp))
        transient += again * max(sum(layer_saved(model, whole, job, moe).values()) for moe in model.kinds)
    return transient


def in_flight(layout: Layout, micro_batches: int, stage: int) -> tuple[int, ...]:
    """Micro-batches whose activations a stage holds at once, for each of its chunks.

    1F1B: pp - stage. Interleaved: the first forwards of the schedule, 2 (pp - stage - 1) + (vp - 1) pp and one more,
    pp micro-batches through one chunk and then through the next.
    Source: get_pp_rank_microbatches and get_schedule_table, pipeline_parallel/schedules.py of megatron-core.

    >>> in_flight(Layout(pp=4, vp=2), 8, 0), in_flight(Layout(pp=4), 8, 1)
    ((7, 4), (3,))
    """
    through = [forwards(layout, micro_batches, stage, first) for first in range(layout.vp + 1)]
    return tuple(after - before for before, after in pairwise(through))


def forwards(layout: Layout, micro_batches: int, stage: int, first: int) -> int:
    """The sum of `in_flight` over so many of the first chunks."""
    pp, vp = layout.pp, layout.vp
    if vp == 1:
        return first * min(micro_batches, pp - stage)
    rounds, rest = divmod(min(micro_batches * vp, (pp - stage - 1) * 2 + (vp - 1) * pp + 1), pp * vp)
    return first * rounds * pp + min(rest, first * pp)
