"""Attention heads: each rank of tensor parallelism and of the all-to-all gets whole heads."""

from __future__ import annotations

from megatron_hcp.core.fits import exchange_fits, kv_heads_fit
from megatron_hcp.core.releases import MCORE_SHARED_KV_HEADS
from megatron_hcp.rules.cp.view import (
    heads_per_rank,
    hierarchical_fixes,
    kv_heads_per_rank,
    layer_types,
    switch_types,
    tp_fixes,
    under_cp,
)
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import TE_CONTEXT_PARALLEL, TRANSFORMER_CONFIG
from megatron_hcp.rules.view import View


def _has_flat_a2a(v: View) -> bool:
    # Next to hierarchical layers this is HCP019, which offers other fixes.
    return "a2a" in layer_types(v) and "a2a+p2p" not in layer_types(v)


@rule(
    "CP007",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "AttnFuncWithCPAndQKVOA2A.forward", "q.shape[-2] % cp_size == 0 and k.shape[-2] % cp_size == 0", ">=2.3"
        ),
    ),
    applies=under_cp(_has_flat_a2a),
    good=Example(
        "mlm",
        "--context-parallel-size 4 --cp-comm-type a2a --num-attention-heads 32 "
        "--group-query-attention --num-query-groups 8 --tensor-model-parallel-size 2",
    ),
    bad=Example(
        "mlm",
        "--context-parallel-size 4 --cp-comm-type a2a --num-attention-heads 32 "
        "--group-query-attention --num-query-groups 8 --tensor-model-parallel-size 4",
    ),
)
def cp_divides_heads_for_a2a(v: View) -> Problem | None:
    """With a2a, the heads of a rank are divisible by the CP size.

    a2a trades sequence shards for head shards: each CP rank gets 1/CP of the query and KV heads that its
    tensor-parallel rank holds. Only Transformer Engine checks this, in the first forward pass, after the model has been
    built and the checkpoint loaded. With fewer KV heads than tensor-parallel ranks, each rank has one.
    """
    heads, kv_heads = heads_per_rank(v), kv_heads_per_rank(v)
    if exchange_fits((heads, kv_heads), v.cp):
        return None
    return Problem(
        message="a2a gives each CP rank whole heads, and these cannot be split evenly: the first forward pass fails",
        found=f"{heads} query and {kv_heads} KV heads per tensor-parallel rank at context_parallel_size {v.cp}",
        wanted=f"both a multiple of {v.cp}",
        facts=("cp_comm_type", "cp", "kv_heads", "heads", "tp"),
        fixes=(Fix(switch_types(v, "p2p", only="a2a"), "a ring: heads are not split"), *hierarchical_fixes(v)),
    )


@rule(
    "CP008",
    "error crash config",
    source=(
        TRANSFORMER_CONFIG.says("TransformerConfig.__post_init__", "must be a multiple or divisor of", ">=0.16"),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "self.num_query_groups % self.tensor_model_parallel_size != 0", ">=0.12"
        ),
    ),
    applies=lambda v: v.get("tp") != 1 and v.get("kv_heads", 1) is not None,
    good=Example(
        "mlm", "--tensor-model-parallel-size 4 --num-attention-heads 32 --group-query-attention --num-query-groups 8"
    ),
    bad=Example(
        "mlm", "--tensor-model-parallel-size 4 --num-attention-heads 12 --group-query-attention --num-query-groups 6"
    ),
)
def kv_heads_fit_tp(v: View) -> Problem | None:
    """The number of KV heads is a multiple or a divisor of the TP size.

    Each tensor-parallel rank holds whole KV heads, or (megatron-core 0.16 and later) shares one with its neighbours.
    Anything else is rejected when the model config is built.
    """
    groups, tp = v.kv_heads, v.tp
    if kv_heads_fit(groups, tp, shares=False):
        return None
    if kv_heads_fit(groups, tp):
        if v.at_least("mcore", MCORE_SHARED_KV_HEADS):
            return None
        wanted = f"a multiple of {tp}: megatron-core before 0.16 doesn't replicate KV heads"
    else:
        wanted = f"a multiple or a divisor of {tp}"
    return Problem(
        message="the KV heads cannot be divided over the tensor-parallel ranks: the model config is rejected",
        found=f"{groups} KV heads at tensor_model_parallel_size {tp}",
        wanted=wanted,
        facts=("kv_heads", "tp"),
        fixes=tp_fixes(v, shared=tp % groups != 0),
    )
