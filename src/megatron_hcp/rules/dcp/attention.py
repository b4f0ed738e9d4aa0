"""Attention under dynamic CP: what can switch to another group from one sequence to the next."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import (
    HIERARCHICAL,
    NOT_LOCAL,
    comm_types,
    heads_per_rank,
    kv_heads_per_rank,
    local_attention_fact,
    switch_types,
)
from megatron_hcp.rules.dcp.launches import HYBRID, ON_MAIN, hybrid
from megatron_hcp.rules.dcp.view import is_dynamic, is_hybrid, is_newer_than_read, num_ranks
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    CORE_ATTENTION,
    CORE_DOT_PRODUCT_ATTENTION,
    EXTENSION_TE,
    MULTI_LATENT_ATTENTION,
    TE_CONTEXT_PARALLEL,
)
from megatron_hcp.rules.view import View


def _ignores_type(v: View) -> Problem | None:
    """The problem if the communication type never reaches Transformer Engine."""
    if comm_types(v) == ("p2p",):
        return None
    return Problem(
        message="every group exchanges K and V by p2p: at a static CP size of 1 the layers are built without a "
        "communication type",
        found=f"dynamic CP with cp_comm_type {', '.join(comm_types(v))} at context_parallel_size 1",
        wanted="p2p, which is what actually runs, or a static CP size above 1",
        facts=("cp_comm_type", "cp"),
        fixes=(Fix(switch_types(v, "p2p"), "states what actually runs"),),
        severity="warning",
        effect="silent",
        stage="never",
    )


@rule(
    "DCP009",
    "error crash training",
    source=(
        EXTENSION_TE.says("TEDotProductAttention.forward", "super().set_context_parallel_group(", ">=0.16"),
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp", "isinstance(cp_group, list) and len(cp_group) == 2", ">=2.8"
        ),
    ),
    applies=is_dynamic,
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example(
        "mlm",
        hybrid(cp_comm_type="a2a+p2p", hierarchical_context_parallel_sizes="4 2"),
        "world_size=8 mcore=0.17.0 te=2.20 arch=sm90",
    ),
)
def comm_type_works_in_any_group(v: View) -> Problem | None:
    """Dynamic CP uses a communication type that works with any group.

    Each sequence comes with one process group, and attention gets that group with the layer's communication type.
    a2a+p2p needs a pair of groups; a2a needs head counts divisible by the size of the widest group. At a static CP size
    of 1 the type never reaches Transformer Engine.
    """
    types = comm_types(v)
    if v.cp == 1:
        return _ignores_type(v)
    if HIERARCHICAL in types:
        return Problem(
            message="the first sequence with its own group fails: a2a+p2p needs two groups and gets one",
            found="dynamic CP with cp_comm_type a2a+p2p",
            wanted="p2p, all_gather or a2a",
            facts=("cp_comm_type", "hcp_sizes"),
            fixes=(Fix(switch_types(v, "p2p", only=HIERARCHICAL), "a ring over the chosen group, whatever its size"),),
        )
    ranks = num_ranks(v)
    if "a2a" not in types or (heads_per_rank(v) % ranks == 0 and kv_heads_per_rank(v) % ranks == 0):
        return None
    return Problem(
        message="the all-to-all fails in the first group that is wider than the heads allow",
        found=f"cp_comm_type a2a with {heads_per_rank(v)} heads and {kv_heads_per_rank(v)} KV heads on a TP rank, in "
        f"groups of up to {ranks}",
        wanted=f"head counts divisible by {ranks}, or p2p",
        facts=("cp_comm_type", "heads", "kv_heads"),
        fixes=(Fix(switch_types(v, "p2p"), "a ring over the chosen group, whatever its size"),),
    )


@rule(
    "DCP010",
    "error crash training",
    source=(
        EXTENSION_TE.says("TEDotProductAttention.__init__", "if self.config.context_parallel_size > 1:", ">=0.16"),
        EXTENSION_TE.says("TEDotProductAttention.forward", "TEDotProductAttention.cp_stream", ">=0.16"),
        CORE_DOT_PRODUCT_ATTENTION.says(
            "DotProductAttention.forward", "Packed sequence is not supported by DotProductAttention.", ">=0.12"
        ),
    ),
    applies=lambda v: v.dialect in ("mlm", "bridge-provider") and is_hybrid(v) and not is_newer_than_read(v),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example(
        "bridge-provider",
        "model.hybrid_context_parallel=true model.max_seqlen_per_dp_cp_rank=4096 "
        "model.context_parallel_size=1 model.calculate_per_token_loss=true",
        "mcore=0.17.0 world_size=8 dp=8",
    ),
)
def hybrid_cp_has_static_cp_above_1(v: View) -> Problem | None:
    """Hybrid CP has a static CP size above 1.

    Attention creates its CUDA stream for CP at construction, and only if the static CP size is above 1. Hybrid CP
    passes that stream to Transformer Engine with each group; without it the first wait fails. megatron-core's own
    attention has no groups, and refuses the packed rows that all dynamic CP has.
    """
    if v.cp > 1:
        return None
    if (name := local_attention_fact(v)) is not None:
        return Problem(
            message="the first batch fails: megatron-core's own attention takes no packed rows",
            found=f"hybrid_context_parallel with {name} local",
            wanted="Transformer Engine's attention, and a static context_parallel_size above 1",
            facts=(name, "cp"),
            fixes=(Fix({name: NOT_LOCAL[name], "cp": num_ranks(v)}, "attention that splits sequences"),),
            stage="first-forward",
        )
    return Problem(
        message="the first sequence that is split fails: 'NoneType' object has no attribute 'wait_event'",
        found="hybrid_context_parallel at context_parallel_size 1, where attention creates no stream for CP",
        wanted="a static context_parallel_size above 1; groups are still chosen per sequence",
        facts=("cp",),
        fixes=(Fix({"cp": num_ranks(v)}, "the stream exists, and the static group spans all ranks"),),
    )


@rule(
    "DCP011",
    "error crash first-forward",
    source=(
        MULTI_LATENT_ATTENTION.says(
            "MLASelfAttention.get_query_key_value_tensors",
            "hybrid_context_parallel is not supported with MLA yet",
            ">=0.16",
            branches=("main",),
        ),
    ),
    applies=lambda v: is_hybrid(v) and not is_newer_than_read(v),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example(
        "bridge-provider",
        "model.hybrid_context_parallel=true model.max_seqlen_per_dp_cp_rank=4096 "
        "model.multi_latent_attention=true model.calculate_per_token_loss=true",
        "mcore=0.17.0",
    ),
)
def hybrid_cp_excludes_mla(v: View) -> Problem | None:
    """Hybrid CP runs without multi-latent attention.

    Multi-latent attention on main asserts that no per-sequence group is passed; the dev branch supports it.
    """
    if not v.mla:
        return None
    return Problem(
        message="the first forward pass fails with an assertion",
        found="hybrid_context_parallel with multi-latent attention",
        wanted="megatron-core's dev branch, or static context parallelism",
        facts=("mla",),
        fixes=(Fix({"hybrid_context_parallel": False}, "static context parallelism"),),
    )


@rule(
    "DCP012",
    "error silent never",
    source=(CORE_ATTENTION.says("Attention.forward", "cp_group=self.pg_collection.cp,", ">=0.16"),),
    applies=lambda v: v.dialect == "mlm" and is_hybrid(v) and not is_newer_than_read(v),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", hybrid(position_embedding_type="rope"), ON_MAIN),
)
def hybrid_cp_excludes_static_rotary_embedding(v: View) -> Problem | None:
    """Hybrid CP doesn't use a rotary embedding that reads the static CP group.

    With packed data, rotary angles depend on the rank and size of a CP group. On main that is the static group, not the
    sequence's own, so ranks of a wider or narrower group apply the wrong positions. According to a report, the run
    crashes at best and trains wrongly at worst.
    """
    kind = "rope" if v.use_rotary_position_embeddings else v.position_embedding_type
    if kind not in ("rope", "mrope", "yarn"):
        return None
    return Problem(
        message="positions are wrong for every sequence whose group size differs from the static CP size: the model "
        "trains worse, or reads beyond its position tables",
        found=f"hybrid_context_parallel with position_embedding_type {kind}",
        wanted="static context parallelism, or megatron-core's dev branch",
        facts=("position_embedding_type",),
        fixes=(Fix({"hybrid_context_parallel": False}, "static context parallelism"),),
    )
