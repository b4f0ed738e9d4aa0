"""Hierarchical CP: how the inner all-to-all splits the heads."""

from __future__ import annotations

from megatron_hcp.core.fits import exchange_fits
from megatron_hcp.rules.cp.view import HIERARCHICAL, comm_types, heads_per_rank, kv_heads_per_rank, under_cp
from megatron_hcp.rules.hcp.launches import LEVELS
from megatron_hcp.rules.hcp.view import flat_fixes, level_fixes, runs_hcp, two_levels
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import TE_ATTENTION_UTILS, TE_CONTEXT_PARALLEL, TRANSFORMER_LAYER
from megatron_hcp.rules.view import View

_EIGHT_KV = "--num-attention-heads 32 --group-query-attention --num-query-groups 8"


def _heads(v: View) -> tuple[int, int] | None:
    """(query, KV) heads per TP rank; None if TP doesn't divide the heads, which TP001 reports."""
    return None if v.heads % v.tp else (heads_per_rank(v), kv_heads_per_rank(v))


def _counts(queries: int, keys: int) -> str:
    """The head counts, in words."""
    return f"{queries} query and {keys} KV head{'s' if keys > 1 else ''} on a TP rank"


@rule(
    "HCP007",
    "error crash first-forward",
    source=(TE_CONTEXT_PARALLEL.says("flash_attn_a2a_communicate", "// cp_size,", ">=2.3"),),
    applies=runs_hcp,
    good=Example(
        "mlm",
        f"{_EIGHT_KV} --tensor-model-parallel-size 2 --context-parallel-size 8 {LEVELS} 4 2",
    ),
    bad=Example(
        "mlm",
        f"{_EIGHT_KV} --tensor-model-parallel-size 4 --context-parallel-size 8 {LEVELS} 4 2",
    ),
)
def inner_size_divides_heads(v: View) -> Problem | None:
    """The inner size divides the query and KV heads per TP rank.

    The inner all-to-all gives each rank heads / inner size heads. Nothing checks that this is an integer: the first
    forward pass fails in a reshape. With fewer KV heads than TP ranks, each TP rank has one KV head, so no inner size
    above 1 works. MLA has as many KV heads as query heads.
    """
    levels = two_levels(v)
    if levels is None or levels[0] == 1:
        return None
    inner, heads = levels[0], _heads(v)
    if heads is None or exchange_fits(heads, inner):
        return None
    return Problem(
        message="the first forward pass fails with a shape error that mentions neither heads nor sizes",
        found=f"inner size {inner} with {_counts(*heads)}",
        wanted="an inner size that divides both",
        facts=("hcp_sizes", "kv_heads", "heads", "tp"),
        fixes=(*level_fixes(v), *flat_fixes(v)),
    )


@rule(
    "HCP008",
    "warning slow never",
    source=(
        TE_ATTENTION_UTILS.says(
            "get_attention_backend",
            'elif cp_comm_type in ["a2a", "a2a+p2p"] and (num_heads % 2 != 0 or num_gqa_groups % 2 != 0):',
            ">=2.15",
        ),
    ),
    applies=under_cp(lambda v: not {"a2a", HIERARCHICAL}.isdisjoint(comm_types(v))),
    good=Example(
        "mlm",
        "--num-attention-heads 24 --group-query-attention --num-query-groups 6 "
        f"--context-parallel-size 6 {LEVELS} 3 2 "
        "--attention-backend fused",
        "te=2.20.2",
    ),
    bad=Example(
        "mlm",
        "--num-attention-heads 24 --group-query-attention --num-query-groups 3 "
        f"--context-parallel-size 6 {LEVELS} 3 2 "
        "--attention-backend fused",
        "te=2.20.2",
    ),
    may_be_error=True,
)
def head_counts_are_even(v: View) -> Problem | None:
    """Head counts are even if heads are split and fused attention is wanted.

    From 2.15 on Transformer Engine drops fused attention for a2a and a2a+p2p when a head count is odd. The 2 is
    hard-coded and is not the inner size, so legal layouts such as three KV heads over three ranks lose fused attention.
    Only NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 shows it; with attention_backend fused no backend is left.
    """
    heads = _heads(v)
    if heads is None or (heads[0] % 2 == 0 and heads[1] % 2 == 0):
        return None
    if HIERARCHICAL in comm_types(v):
        levels = two_levels(v)
        if levels is None or (levels[0] > 1 and any(count % levels[0] for count in heads)):
            return None  # the sizes are wrong anyway: HCP001 to HCP004, HCP007
    if "a2a" in comm_types(v) and any(count % v.cp for count in heads):
        return None  # CP007, HCP019
    if v.attention_backend == "flash" or not v.at_least("te", "2.15"):
        return None
    fused = v.attention_backend == "fused"
    return Problem(
        message=(
            "the first forward pass fails: no dot product attention backend is available"
            if fused
            else "fused attention is silently disabled, and the slower FlashAttention runs"
        ),
        found=f"{_counts(*heads)} with cp_comm_type {', '.join(comm_types(v))} and attention_backend "
        f"{v.attention_backend or 'auto'}",
        wanted="even head counts per TP rank, whatever the inner size",
        facts=("attention_backend", "heads", "kv_heads", "tp"),
        fixes=(
            Fix({"attention_backend": "flash"}, "FlashAttention, which has no such restriction"),
            *(flat_fixes(v, "p2p") if HIERARCHICAL in comm_types(v) else [Fix({"cp_comm_type": "p2p"}, "one ring")]),
        ),
        severity="error" if fused else "warning",
        effect="crash" if fused else "slow",
        stage="first-forward" if fused else "never",
    )


@rule(
    "HCP019",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "AttnFuncWithCPAndQKVOA2A.forward", "q.shape[-2] % cp_size == 0 and k.shape[-2] % cp_size == 0", ">=2.3"
        ),
        TRANSFORMER_LAYER.says("TransformerLayer.__init__", "isinstance(config.cp_comm_type, list)", ">=0.12"),
    ),
    applies=under_cp(lambda v: {"a2a", HIERARCHICAL} <= set(comm_types(v))),
    good=Example(
        "bridge",
        "model.num_layers=2 model.num_attention_heads=32 model.num_query_groups=8 "
        "model.tensor_model_parallel_size=1 model.context_parallel_size=8 "
        "model.cp_comm_type=[a2a,a2a+p2p] model.hierarchical_context_parallel_sizes=[4,2]",
    ),
    bad=Example(
        "bridge",
        "model.num_layers=2 model.num_attention_heads=32 model.num_query_groups=4 "
        "model.tensor_model_parallel_size=1 model.context_parallel_size=8 "
        "model.cp_comm_type=[a2a,a2a+p2p] model.hierarchical_context_parallel_sizes=[4,2]",
    ),
)
def cp_divides_heads_of_a2a_layers(v: View) -> Problem | None:
    """a2a layers beside hierarchical ones have heads divisible by the CP size.

    Types may differ from layer to layer, because the sequence layout is the same for all. The head split differs: a
    hierarchical layer divides heads by the inner size, a plain a2a layer by the full CP size.
    """
    heads = _heads(v)
    if heads is None or exchange_fits(heads, v.cp):
        return None
    types = tuple(HIERARCHICAL if item == "a2a" else item for item in v.cp_comm_type)
    ring = tuple("p2p" if item == "a2a" else item for item in v.cp_comm_type)
    return Problem(
        message="the first forward pass fails in an a2a layer with an assertion about heads",
        found=f"layers of type a2a at context_parallel_size {v.cp} with {_counts(*heads)}",
        wanted=f"for a2a layers, head counts divisible by {v.cp} (for a2a+p2p layers, the inner size is enough)",
        facts=("cp_comm_type", "kv_heads", "heads", "tp"),
        fixes=(
            Fix({"cp_comm_type": types}, "the a2a layers become hierarchical"),
            Fix({"cp_comm_type": ring}, "the a2a layers use the ring"),
        ),
    )
