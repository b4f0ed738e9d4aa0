"""The peak of allocated memory on each pipeline stage, and what of a GPU's memory it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hcp.core.cost.gpus import Gpu
from hcp.plan.layout import Layout, PlanJob, stage_layers
from hcp.plan.memory.activations import layer_saved
from hcp.plan.memory.buffers import cp_buffers, dummy_gradients, layer_transient, output_end, workspaces
from hcp.plan.model import PlanModel
from hcp.plan.weights import layers_of_stage, parameters

GIB = float(1 << 30)
_WEIGHT, _GRADIENT, _OPTIMIZER, _EIGHT_BIT_COPIES = 2, 4, 12, 2
"""Bytes of a parameter: in bf16; its fp32 gradient; fp32 weight and two moments of Adam, sharded; 8-bit copies by row
and by column."""
_RESERVED = 1.0
"""GiB of CUDA's context, and of NCCL's buffers, at the least. Published layouts leave no more: Llama2-7B at 4K tokens
ran at 72 of 79 GiB, which a margin of 12 % calls impossible."""


@dataclass(frozen=True)
class PlanMemory:
    """Peak of torch's allocated memory. `terms`: GiB of the fullest stage, which sum to `peak`; `by_stage`: GiB."""

    terms: Mapping[str, float]
    stage: int
    peak: float
    by_stage: tuple[float, ...]


def usable_gib(gpu: Gpu) -> float:
    """GiB of a GPU that torch may allocate: the memory that it reports, less CUDA's context and NCCL's buffers.

    >>> from hcp.core.cost.gpus import gpu_named
    >>> round(usable_gib(gpu_named("h100")), 1)
    78.6
    """
    return (gpu.reported_mib * float(1 << 20) or gpu.memory_bytes) / GIB - _RESERVED


def memory(model: PlanModel, layout: Layout, job: PlanJob) -> PlanMemory:
    """The peak of each stage, and the terms of the fullest one."""
    stages = [stage_terms(model, layout, job, stage) for stage in range(layout.pp)]
    totals = [sum(terms.values()) for terms in stages]
    fullest = totals.index(max(totals))
    terms = {name: value / GIB for name, value in stages[fullest].items() if value}
    return PlanMemory(terms, fullest, totals[fullest] / GIB, tuple(total / GIB for total in totals))


def stage_terms(model: PlanModel, layout: Layout, job: PlanJob, stage: int) -> dict[str, float]:
    """Bytes of one stage at its peak, by term."""
    held = parameters(model, layout, stage)
    both = held.dense + held.expert
    dense_shards, expert_shards = max(1, job.dp(layout) * layout.cp), max(1, job.edp(layout))
    copies = _EIGHT_BIT_COPIES if job.precision != "bf16" else 0
    terms = {
        "weights": float((_WEIGHT + copies) * both),
        "gradients": float(_GRADIENT * both),
        "optimizer": _OPTIMIZER * (held.dense / dense_shards + held.expert / expert_shards),
        "dummy gradients": dummy_gradients(model, layout, stage),
        "workspaces": workspaces(model),
        **kept(model, layout, job, stage),
    }
    transients = {
        "layer backward": _layer_backward(model, layout, job),
        "CP buffers": cp_buffers(model, layout, job),
    }
    if stage == layout.pp - 1:
        transients["output end"] = output_end(model, layout, job)
    largest = max(transients, key=lambda name: transients[name])
    return {**terms, largest: transients[largest]}


def _layer_backward(model: PlanModel, layout: Layout, job: PlanJob) -> float:
    """The widest layer's backward pass; with full recomputation all that the layer keeps comes back first."""
    transient = layer_transient(model, layout, job)
    if layout.recompute == "full":
        whole = replace(layout, recompute="none")
        transient += max(sum(layer_saved(model, whole, job, moe).values()) for moe in set(model.is_moe))
    return transient


def kept(model: PlanModel, layout: Layout, job: PlanJob, stage: int) -> dict[str, float]:
    """Bytes of activations that the stage keeps at its fullest: of the micro-batches that are in flight on it."""
    chunks = stage_layers(model, layout)
    flights = in_flight(layout, job.micro_batches(layout), stage)
    counts = {False: 0, True: 0}
    for layers, flying in zip(layers_of_stage(chunks, stage), flights, strict=True):
        with_experts = sum(model.is_moe[layers.start : layers.stop])
        counts[True] += with_experts * flying
        counts[False] += (len(layers) - with_experts) * flying
    if stage == layout.pp - 1 and model.mtp:
        counts[bool(model.sizes.experts)] += model.mtp * flights[-1]
    terms: dict[str, float] = {}
    for moe, count in counts.items():
        if count:
            for name, size in layer_saved(model, layout, job, moe).items():
                terms[f"kept: {name}"] = terms.get(f"kept: {name}", 0.0) + count * size
    return terms


def in_flight(layout: Layout, micro_batches: int, stage: int) -> tuple[int, ...]:
    """Micro-batches whose activations a stage holds at once, for each of its chunks.

    1F1B: pp - stage. Interleaved: the first forwards of the schedule, 2 (pp - stage - 1) + (vp - 1) pp and one more,
    pp micro-batches through one chunk and then through the next.
    Source: get_pp_rank_microbatches and get_schedule_table, pipeline_parallel/schedules.py of megatron-core.

    >>> in_flight(Layout(pp=4, vp=2), 8, 0), in_flight(Layout(pp=4), 8, 1)
    ((7, 4), (3,))
    """
    pp, vp = layout.pp, layout.vp
    if vp == 1:
        return (min(micro_batches, pp - stage),)
    forwards = min(micro_batches * vp, (pp - stage - 1) * 2 + (vp - 1) * pp + 1)
    rounds, rest = divmod(forwards, pp * vp)
    return tuple(rounds * pp + min(pp, max(0, rest - chunk * pp)) for chunk in range(vp))
