"""A step from its layers: the pipeline and its bubble, data parallelism, the optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from megatron_hcp.plan.constants import Rates
from megatron_hcp.plan.layout import Layout, PlanJob, overlaps_exchange
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.time.layer import Work
from megatron_hcp.plan.time.links import ring_bandwidth
from megatron_hcp.plan.time.margin import margin
from megatron_hcp.plan.time.parts import LayerSeconds, Units
from megatron_hcp.plan.time.shapes import RankElements, weights_of
from megatron_hcp.plan.weights import LayerKinds, stage_kinds, unlike_stages

WORST_STAGE = 0.2
"""How far a micro-batch takes the longest stage's time and not the mean: recipes balance the stages by hand."""
PARAMETER_BYTES = 2
"""Gathered in bf16."""
OPTIMIZER_BYTES = 46
"""Bytes that a step reads and writes for each parameter of a rank's shard: 4 for the norm of the gradients, 8 to clip
them, 28 for Adam on fp32 gradients, weights and moments, 6 for the copy in bf16. Source: clip_grads.py and
distrib_optimizer.py of Megatron-LM."""
BUFFER_PASSES = 3
"""Passes over the whole gradient buffer: it is set to zero, and scaled. Source: param_and_grad_buffer.py."""
DP_HIDDEN_SHARE = 0.6
"""Part of a micro-batch that can hide the last gradients and the first parameters."""
LAYER_TERMS = ("gemm", "attention", "memory_bound", "tp", "ep", "cp", "recompute", "host")


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step: `terms` add up to `seconds`; `hidden`: communication that costs nothing.

    `band`: how far the prediction may be off, relative. `marks`: what no measurement covers.
    """

    seconds: float
    terms: Mapping[str, float]
    hidden: Mapping[str, float] = field(default_factory=dict)
    band: float = 0.0
    marks: tuple[str, ...] = ()


def micro_batch_seconds(
    kinds: Sequence[LayerKinds], layers: tuple[int, int], pp: int, *, dense: float, moe: float, extra: float
) -> tuple[float, float]:
    """(what a micro-batch counts for, the mean of the stages), in seconds.

    Args:
        kinds: of `unlike_stages`.
        layers: of the model.
        pp: stages.
        dense: seconds of a dense layer.
        moe: seconds of an MoE layer.
        extra: seconds of the last stage beside its layers: the output, and multi-token prediction.
    """
    times = [plain * dense + experts * moe for plain, experts in kinds]
    times[-1] += extra
    mean = (layers[0] * dense + layers[1] * moe + extra) / pp
    return mean + WORST_STAGE * (max(times) - mean), mean


def data_parallel_seconds(
    model: PlanModel, layout: Layout, job: PlanJob, rates: Rates, each: RankElements
) -> tuple[float, float]:
    """(collectives of gradients and parameters, optimizer) of the stage that holds most, in seconds."""
    replicas, edp = layout.cp * job.dp(layout), max(1, job.edp(layout))
    kinds = unlike_stages(model, layout.pp, layout.vp)
    dense = [n * each.dense + m * each.moe for n, m in kinds]
    experts = [m * each.expert for _, m in kinds]
    if model.mtp:
        dense[-1] += model.mtp * (each.moe if model.is_moe[-1] else each.dense)
        experts[-1] += model.mtp * each.expert * model.is_moe[-1]
    dense[0] += each.vocab
    if layout.pp > 1 or not model.tied:
        dense[-1] += each.vocab
    gradient = 4 if job.fp32_gradients else 2
    # Without the distributed optimizer gradients are reduced to every rank, and no parameter is gathered.
    domain, width = job.domain, gradient + (PARAMETER_BYTES if job.sharded_optimizer else gradient)
    dense_s = width * (replicas - 1) / replicas / ring_bandwidth(replicas, layout.tp, domain, rates)
    expert_s = width * (edp - 1) / edp / ring_bandwidth(edp, layout.etp * layout.ep, domain, rates)
    sent = max(d * dense_s + e * expert_s for d, e in zip(dense, experts))
    shares = (replicas, edp) if job.sharded_optimizer else (1, 1)
    touched = max(
        OPTIMIZER_BYTES * (d / shares[0] + e / shares[1]) + BUFFER_PASSES * gradient * (d + e)
        for d, e in zip(dense, experts)
    )
    return sent, touched / rates.memory_bandwidth


def sends_seconds(model: PlanModel, layout: Layout, job: PlanJob, rates: Rates) -> float:
    """Seconds in which a rank passes a micro-batch on, forward and backward, from one of its chunks; of tp, cp, mbs."""
    tokens = layout.mbs * job.seq_length / layout.cp
    link = ring_bandwidth(2, 1, job.nvlink_domain if job.world_size <= job.nvlink_domain else 1, rates)
    return 4.0 * tokens * model.sizes.hidden_size / layout.tp / link


def exposed_sends(sends: float, micro_batch: float, *, count: int, pp: int, vp: int) -> float:
    """Seconds in which a pipeline waits for what its stages pass on; `sends`: of `sends_seconds`.

    A schedule of one chunk on each stage waits for every send, and fills and drains with them. An interleaved one waits
    while it fills and drains; between, a send runs beside another chunk, forward beside backward. Source:
    forward_backward_pipelining_with_interleaving and get_pp_rank_microbatches, schedules.py of megatron-core;
    overlap_p2p_comm in comm_overlap.py of Megatron-Bridge, which is on with chunks alone.
    """
    if pp == 1:
        return 0.0
    if vp == 1:
        return (count + pp - 1) * sends
    filling = min(count * vp, 2 * (pp - 1) + (vp - 1) * pp)
    return filling * sends + (count * vp - filling) * max(0.0, sends - micro_batch / vp)


def step_seconds(
    micro_batch: float, dp: float, optimizer: float, sends: float, rates: Rates, *, count: int, pp: int, vp: int
) -> float:
    """Seconds of a step of `count` micro-batches on each replica; `sends`: of `sends_seconds`."""
    exposed = max(rates.dp_exposed * dp, dp - DP_HIDDEN_SHARE * micro_batch)
    passed = exposed_sends(sends, micro_batch, count=count, pp=pp, vp=vp)
    return (count + (pp - 1) / vp) * micro_batch + exposed + optimizer + passed


def extra_seconds(model: PlanModel, each: Units) -> float:
    """What the last stage has beside its layers."""
    return each.output.total + model.mtp * (each.predicting.total + each.mtp.total)


MEASURED_ETP, MEASURED_EXPERTS = 2, 32
"""The largest ETP, and the most experts on a rank, of all measured steps."""


def uncovered(model: PlanModel, layout: Layout) -> tuple[str, ...]:
    """What of a layout no measured step covers, in words: such a layout is never ranked first."""
    marks = []
    if any(model.is_moe) and layout.ep == 1:
        marks.append("experts without expert parallelism: no measured step has EP 1")
    elif _has_many_experts(model, layout):
        held = model.sizes.experts // layout.ep
        marks.append(f"{held} experts on a rank: no measured step has more than {MEASURED_EXPERTS}")
    if any(model.is_moe) and layout.etp > MEASURED_ETP:
        marks.append(f"ETP {layout.etp}: no measured step has more than {MEASURED_ETP}")
    return tuple(marks)


def _has_many_experts(model: PlanModel, layout: Layout) -> bool:
    """Whether a rank has more experts than in any measured step."""
    return any(model.is_moe) and model.sizes.experts > MEASURED_EXPERTS * layout.ep


def step_time(model: PlanModel, layout: Layout, job: PlanJob, rates: Rates) -> StepTime:
    """How long a step takes and what it is made of."""
    rates = rates if overlaps_exchange(model, layout) else rates.apart
    work = Work(model, job, rates)
    each = _units(work, layout)
    pp, vp, count = layout.pp, layout.vp, job.micro_batches(layout)
    micro_batch, mean = micro_batch_seconds(
        unlike_stages(model, pp, vp), model.layers, pp,
        dense=each.dense.total, moe=each.moe.total, extra=extra_seconds(model, each),
    )  # fmt: skip
    sent, optimizer = data_parallel_seconds(model, layout, job, rates, weights_of(model, layout))
    sends = sends_seconds(model, layout, job, rates) if pp > 1 else 0.0
    seconds = step_seconds(micro_batch, sent, optimizer, sends, rates, count=count, pp=pp, vp=vp)
    parts = _parts(model, each)
    terms = {name: count / pp * sum(n * getattr(part, name) for n, part in parts) for name in LAYER_TERMS}
    hidden = {
        name: count / pp * sum(n * getattr(part, f"hidden_{name}") for n, part in parts) for name in ("tp", "ep", "cp")
    }
    terms["imbalance"] = count * (micro_batch - mean)
    terms["bubble"] = (pp - 1) / vp * micro_batch
    terms["pp"] = exposed_sends(sends, micro_batch, count=count, pp=pp, vp=vp)
    hidden["pp"] = max(0.0, count * vp * sends - terms["pp"])
    terms["dp"] = max(rates.dp_exposed * sent, sent - DP_HIDDEN_SHARE * micro_batch)
    hidden["dp"] = sent - terms["dp"]
    terms["optimizer"] = optimizer
    marks = (
        *rates.marks,
        *job.marks,
        *uncovered(model, layout),
        *(f"{what}: no formula" for what in model.kind_unknown),
    )
    is_open = rates.is_release_open and bool(model.sizes.experts)
    unmeasured = count / pp * (model.sizes.num_layers + model.mtp) * each.unmeasured / seconds
    band = margin(
        model, job, rates, terms, is_covered=not (marks or is_open), unmeasured=unmeasured,
        has_many_experts=_has_many_experts(model, layout),
    )  # fmt: skip
    return StepTime(seconds, terms, hidden, band, (*marks, *_unmeasured(model, layout)))


def _units(work: Work, layout: Layout) -> Units:
    """The parts of a layout; with block recomputation a layer is the mean of those repeated and the others.

    Those of multi-token prediction are none of a chunk's first layers. Source: _checkpointed_forward,
    multi_token_prediction.py of megatron-core, which skips them with recompute_method block.
    """
    each, block = work.units(layout), work.job.block_layers
    if layout.recompute != "full" or block is None:
        return each
    plain = work.units(replace(layout, recompute="none"))
    again, whole = (LayerKinds(*map(sum, zip(*stage_kinds(work.model, layout.pp, layout.vp, most))))
                    for most in (block, None))  # fmt: skip
    dense, moe = (part / max(1, of) for part, of in zip(again, whole))
    return each._replace(
        dense=_mixed(each.dense, plain.dense, dense), moe=_mixed(each.moe, plain.moe, moe),
        predicting=plain.predicting,
    )  # fmt: skip


def _mixed(one: LayerSeconds, other: LayerSeconds, share: float) -> LayerSeconds:
    """The mean, `share` of it the first one."""
    return LayerSeconds(*(share * a + (1 - share) * b for a, b in zip(one, other)))


def _unmeasured(model: PlanModel, layout: Layout) -> tuple[str, ...]:
    """Layers of the model that no measured step has, in words, and what CP sends for them, which no formula counts."""
    blocks, name = model.mixers.blocks, model.mixers.like_attention
    if not (blocks or name):
        return ()
    name = "Mamba layers" if blocks else name
    memory = "" if blocks else ", and memory counts them like plain attention"
    marks = [f"{name}: no measured step has them{memory}"]
    if layout.cp > 1:
        marks.append(f"{name}: what CP exchanges for them is not counted")
    if model.mixers.compressed and layout.tp > 1:
        marks.append(f"{name}: megatron-core refuses TP above 1")
    return tuple(marks)


def _parts(model: PlanModel, each: Units) -> tuple[tuple[int, LayerSeconds], ...]:
    """How often the model has each part."""
    layers, experts = model.layers
    return (
        (layers, each.dense),
        (experts, each.moe),
        (1, each.output),
        (model.mtp, each.mtp),
        (model.mtp, each.predicting),
    )


def model_flops(model: PlanModel, seq_length: int) -> float:
    """Floating-point operations of one token, forward and backward: causal attention halved, MTP as a layer and a head.

    The convention of the published TFLOP/s.
    """
    sizes = model.sizes
    scores = sum(min(window, seq_length) * (1 - min(window, seq_length) / seq_length / 2) for window in sizes.windows)
    scores += (sizes.num_layers - len(sizes.windows)) * seq_length / 2
    attention = 2.0 * sizes.heads * (sizes.qk_head_dim + sizes.v_head_dim)
    body = sizes.linear_flops - 2.0 * sizes.hidden_size * sizes.vocab
    forward = sizes.linear_flops + attention * scores
    if model.mtp:
        last = body / sizes.num_layers + attention * scores / sizes.num_layers
        forward += model.mtp * (last + 2.0 * sizes.hidden_size * sizes.vocab + 4.0 * sizes.hidden_size**2)
    return 3 * forward
