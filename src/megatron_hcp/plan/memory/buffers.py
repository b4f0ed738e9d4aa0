"""What a step allocates beside weights and kept activations: bytes on one rank.

| term | bytes | when | source |
|---|---|---|---|
| dummy gradients | 2 x elements of each distinct shape | always, once | get_dummy_wgrad, TE's module/base.py |
| workspaces | 32 MiB + 32 MiB, + 4 x 32 MiB with experts | always | get_cublas_workspace_size_bytes of TE; torch's |
| output end | below | forward and backward of the loss | parallel_cross_entropy of TE, in place |
| userbuffers | T h (4 x 2 + 6 x 1), gathers of 8 bits | always, with tp_comm_overlap | initialize_ub, module/base.py |
| layer | 2 T (2h + 2f)/t of the widest MLP | backward of one layer | LayerNormMLP and Linear of TE |
| CP | `cp_held` | attention of one layer | context_parallel.py of TE |

With gradient accumulation fused into the GEMM, autograd still wants a gradient of each weight's shape: Transformer
Engine keeps one bf16 tensor for each distinct shape, for ever. The output end holds 2 T V/t (logits, whose gradient
takes their place), input and output of the last norm 4 T h/t, the input gathered over TP 2 T h, its gradient 2 T h (and
the part of it after the reduce-scatter, 2 T h/t, where t > 1), and a gradient of the output's shape 2 V h/t. Without
Transformer Engine's cross entropy the loss holds 6 T V/t before those gradients: the logits, a copy in fp32 that
becomes their gradient, and that gradient in bf16. Source: tensor_parallel/cross_entropy.py of megatron-core.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from megatron_hcp.cost.cp_held import AttentionBytes, held
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.memory.activations import rank_kv_heads, rank_tokens
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.time.links import fits_inside
from megatron_hcp.plan.weights import end_weights, layer_weights, padded_vocab, stage_kinds

WORKSPACE = 32 << 20
"""Bytes of a cuBLAS workspace on Hopper and newer, of Transformer Engine and of torch."""
UB_GATHERS, UB_SCATTERS = 6, 4
"""Collectives of a layer with a buffer of their own in Transformer Engine's userbuffers."""
GROUPED_WORKSPACES = 4
"""Further workspaces of grouped GEMMs: one for each of their streams."""


def dummy_gradients(model: PlanModel, layout: Layout, stage: int) -> float:
    """Bytes of Transformer Engine's placeholders: one for each distinct shape of a GEMM's weight."""
    dense, moe = map(bool, stage_kinds(model, layout.pp, layout.vp)[stage])
    return _placeholders(model, layout.tp, layout.ep, layout.etp, layout.pp, dense, moe, stage == layout.pp - 1)


@lru_cache(maxsize=4096)
def _placeholders(
    model: PlanModel, tp: int, ep: int, etp: int, pp: int, dense: bool, moe: bool, last: bool
) -> float:  # fmt: skip
    shapes: frozenset[tuple[int, ...]] = frozenset()
    for kind in [False] * dense + [True] * moe:
        shapes |= layer_weights(model, tp, ep, etp, kind).shapes
    if last:
        shapes |= end_weights(model, tp, ep, etp, pp, True).shapes
    return 2.0 * sum(map(prod, shapes))


def workspaces(model: PlanModel) -> float:
    """Bytes of cuBLAS workspaces."""
    return float(WORKSPACE * (2 + (GROUPED_WORKSPACES if model.sizes.experts else 0)))


def output_end(model: PlanModel, layout: Layout, job: PlanJob) -> float:
    """Bytes at the head of the last stage: logits, the last norm, and what their backward pass makes."""
    tokens, tp, hidden = rank_tokens(layout, job), layout.tp, model.sizes.hidden_size
    vocab = padded_vocab(model, tp) / tp
    scattered = 2.0 * tokens * hidden / tp if tp > 1 else 0.0
    gathered = 2.0 * tokens * hidden if tp > 1 else 0.0
    before = 4.0 * tokens * hidden / tp + gathered
    backward = 2.0 * tokens * (vocab + hidden) + scattered + 2.0 * vocab * hidden
    return before + (backward if job.loss_in_place else max(backward, 6.0 * tokens * vocab))


def userbuffers(model: PlanModel, layout: Layout, job: PlanJob) -> float:
    """Bytes of the buffers in which Transformer Engine overlaps TP's collectives: one for each, of a whole input."""
    if layout.tp == 1 or not job.has_userbuffers or not fits_inside(layout.tp, 1, job.domain):
        return 0.0
    gathered = 2 if job.precision == "bf16" else 1
    return rank_tokens(layout, job) * model.sizes.hidden_size * (2.0 * UB_SCATTERS + gathered * UB_GATHERS)


def layer_transient(model: PlanModel, layout: Layout, job: PlanJob) -> float:
    """Bytes that the backward pass of one layer holds on top of what the layer kept."""
    s, tokens = model.sizes, rank_tokens(layout, job)
    wide = s.dense_ffn if s.dense_layers else s.shared_ffn
    return 2.0 * tokens * (2 * s.hidden_size + 2 * wide) / layout.tp


def cp_buffers(model: PlanModel, layout: Layout, job: PlanJob) -> float:
    """Bytes that context parallelism holds inside the attention of one layer, beyond what the layer keeps."""
    if layout.cp == 1:
        return 0.0
    s, tokens, tp = model.sizes, rank_tokens(layout, job), layout.tp
    each = AttentionBytes(
        q=2.0 * tokens * s.heads * s.qk_head_dim / tp,
        kv=2.0 * tokens * rank_kv_heads(model, tp) * (s.qk_head_dim + s.v_head_dim),
        out=2.0 * tokens * s.heads * s.v_head_dim / tp,
        lse=4.0 * tokens * s.heads / tp,
    )
    return held(each, layout.cp_comm_type, layout.hcp_sizes or (1, layout.cp), job.versions.get("te"))
