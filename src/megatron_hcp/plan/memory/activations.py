"""What a layer keeps for its backward pass: bytes on one rank, term by term.

T is the tokens of a micro-batch on a context-parallel rank, t the tensor-parallel size; sequence parallelism is on
where t > 1. Tensors have 2 bytes an element where nothing else is said. Transformer Engine's modules, no recompute:

| term | bytes | what |
|---|---|---|
| norms | 2 T 2h/t each | input and output of the norms before attention and MLP; the residual is that input |
| q, k, v | 2 T (nq + 2 nkv') d/t | nkv' d/t = at least one head of K and V on each rank |
| attention | 2 T nq dv/t + 4 T nq/t | output, and the log-sum-exp of each row in fp32 |
| latent | 2 T (2 q_lora + 2 kv_lora + rope) | in and out of MLA's two norms, and the rotary key, whole on each rank |
| mlp | 2 T 3f/t | gate and input of the activation, and its output |
| routing | 8 T E/t + 8 R | scores and the map in fp32 and int; R = T k/t rows that a token's copies make |
| experts | 2 R u (h + 3 mf/x) | as mlp, of the rows that reach the local experts; u: `UNEVEN_ROWS` |
| shared expert | 6 T sf/t | as mlp |
| second output | 2 T nq dv/t | with a2a and a2a+p2p, the attention output before its all-to-all: `cp_held` |

Sources: saved tensors of LayerNormLinear, Linear, GroupedLinear and the attention functions of Transformer Engine, the
MoE layers of megatron-core; each is counted against measured peaks by lab/plan/memory.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from megatron_hcp.cost.cp_held import outputs_kept
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import PlanModel

UNEVEN_ROWS = 1.1
"""Rows on the fullest expert-parallel rank over those on an even one: a router is never quite balanced. Fitted to the
measured steps of DeepSeek-V2 and V3, whose groups of experts are such ranks; 1.0 where load balance is forced."""

Bytes = Mapping[str, float]
WHOLE_LAYER = frozenset({"layer"})
"""In place of modules where full recomputation keeps a layer's input alone."""
MODULES = frozenset({"core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"})
"""The modules that can be recomputed apart and whose bytes are counted so: they keep their input.
Source: recompute_modules of TransformerConfig, megatron-core."""


def rank_tokens(layout: Layout, job: PlanJob) -> int:
    """Tokens of a micro-batch on one context-parallel rank."""
    return layout.mbs * job.seq_length // layout.cp


def rank_kv_heads(model: PlanModel, tp: int) -> float:
    """KV heads on one tensor-parallel rank: at least one."""
    return max(1.0, model.sizes.kv_heads / tp)


def kept_evenly(terms: Mapping[str, float]) -> float:
    """Bytes of the terms of a stage that layers keep, if the experts' ranks got the same number of rows."""
    kept = {name: size for name, size in terms.items() if name.startswith("kept: ")}
    return sum(kept.values()) - kept.get("kept: experts", 0.0) * (1 - 1 / UNEVEN_ROWS)


def layer_saved(model: PlanModel, layout: Layout, job: PlanJob, moe: bool) -> Bytes:
    """Bytes that one layer keeps from its forward to its backward pass, by term."""
    te = job.versions.get("te")
    again = layout.cp > 1 and outputs_kept(layout.cp_comm_type, te) == 2
    etp = layout.etp if moe else 1
    modules = WHOLE_LAYER if layout.recompute == "full" else job.modules_again(layout)
    return _layer_saved(model, rank_tokens(layout, job), layout.tp, etp, modules, again, job.precision != "bf16", moe)


@lru_cache(maxsize=65536)
def _layer_saved(
    model: PlanModel,
    tokens: int,
    tp: int,
    etp: int,
    again: frozenset[str],
    output_again: bool,
    eight_bit: bool,
    moe: bool,
) -> Bytes:
    s, kv = model.sizes, rank_kv_heads(model, tp)
    hidden, out = s.hidden_size / tp, s.heads * s.v_head_dim / tp
    if again is WHOLE_LAYER:
        return {"layer inputs": 2.0 * tokens * hidden}
    wide = 1.0 if eight_bit else 2.0  # what a GEMM reads is kept as it reads it
    blocks, norm_count = model.mixers.blocks, model.norms
    if blocks is not None:
        norm_count = 1
    norms = tokens * hidden * (2 * norm_count + (0 if "layernorm" in again else min(2, norm_count) * wide))
    head_out = out * (2 + (1 if eight_bit else 0))
    terms = {
        "norms": norms,
        "q, k, v": 2.0 * tokens * (s.heads * s.qk_head_dim / tp + kv * (s.qk_head_dim + s.v_head_dim)),
        "attention": tokens * (head_out + (0 if "core_attn" in again else 4 * s.heads / tp)),
    }
    if model.qk_norm:  # the norms' inputs; what follows them is q and k
        terms["q and k norms"] = 2.0 * tokens * (s.heads / tp + kv) * s.qk_head_dim
    if s.kv_lora:
        terms["latent"] = tokens * ((2 + wide) * (s.q_lora + s.kv_lora) + 2 * s.qk_rope)
    if output_again and "core_attn" not in again:
        terms["second output"] = 2.0 * tokens * out
    if "mla_up_proj" in again and s.kv_lora:
        del terms["q, k, v"]
    matrices, part = 2 if s.gated else 1, 1.0
    if blocks is not None:  # the mean over layers that are one block each
        share = blocks.attention / blocks.layers
        terms = {name: size * (1.0 if name == "norms" else share) for name, size in terms.items()}
        kept = 2 * (blocks.mamba_in + blocks.mamba_inner + blocks.mamba_states) + (2 + wide) * blocks.mamba_inner
        terms["mamba"] = tokens * kept / tp * blocks.mamba / blocks.layers
        part = blocks.mlp / max(1, blocks.attention + blocks.mamba + blocks.mlp)
    if not moe:
        mlp = 0.0 if "mlp" in again else part * tokens * (2 * matrices + wide) * s.dense_ffn / tp
        return {**terms, "mlp": mlp}
    if "moe" in again:
        return terms
    rows = tokens * s.topk / tp
    terms["routing"] = 8.0 * tokens * s.experts / tp + 8 * rows
    activated = 0.0 if "moe_act" in again else wide
    kept = wide * s.routed_hidden + (2 * matrices + activated) * s.moe_ffn / etp
    terms["experts"] = UNEVEN_ROWS * rows * etp * kept
    if s.shared_ffn and "shared_experts" not in again:
        terms["shared expert"] = tokens * (2 * matrices + wide) * s.shared_ffn / tp
    return terms
