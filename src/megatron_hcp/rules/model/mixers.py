"""Layers with their own context parallelism: Mamba, gated delta nets, DSA."""

from __future__ import annotations

from megatron_hcp.core.fits import mamba_fits
from megatron_hcp.core.releases import MCORE_DELTA_NET_CP, MCORE_DSA_CP
from megatron_hcp.rules.cp.view import layer_types, over, smaller_divisors, type_fixes, under_cp
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    BRIDGE_PACKED_SEQ_UTILS,
    GATED_DELTA_NET,
    MAMBA_CONTEXT_PARALLEL,
    TRANSFORMER_CONFIG,
)
from megatron_hcp.rules.view import Unknown, View

_DSV4 = "model.experimental_attention_variant=dsv4_hybrid model.context_parallel_size=2"
_DSV4_PACKED = (
    "dataset.packed_sequence_specs.packed_sequence_size=4096 dataset.packed_sequence_specs.pad_seq_to_mult=4 "
    "model.calculate_per_token_loss=true ddp.average_in_collective=false train.micro_batch_size=1"
)
_GDN = ("gated_delta_net", "gdn", "gdn2")


def _has_layer(v: View, symbol: str) -> bool:
    """Whether the layer pattern of a hybrid model has that symbol: M = Mamba, G = gated delta net."""
    pattern = v.get("hybrid_pattern")
    return isinstance(pattern, str) and symbol in pattern


def has_mamba(v: View) -> bool:
    return _has_layer(v, "M")


def _has_delta_net(v: View) -> bool:
    return v.get("attention_variant") in _GDN or _has_layer(v, "G")


def mamba_heads(v: View) -> int:
    """As written, or as many as fit the mixer's inner width, which is twice the model's."""
    heads = v.mamba_num_heads
    if heads is not None:
        return int(heads)
    width = v.mamba_head_dim
    if width is None:
        raise Unknown("mamba_head_dim")
    return 2 * int(v.hidden_size) // int(width)


@rule(
    "MODEL001",
    "error crash init",
    source=(
        MAMBA_CONTEXT_PARALLEL.says(
            "MambaContextParallel.__init__",
            "nheads must be evenly divisible by tp_size * cp_size",
            ">=0.13",
            branches=("main",),
        ),
        MAMBA_CONTEXT_PARALLEL.says(
            "MambaContextParallel.__init__",
            "cp_size must be evenly divisible by ngroups/tp_size",
            ">=0.13",
            branches=("main",),
        ),
        MAMBA_CONTEXT_PARALLEL.says(
            "MambaContextParallel._set_cp_params",
            "nheads must be evenly divisible by tp_size * cp_size",
            ">=0.19",
            where="checkout",
            branches=("dev",),
        ),
    ),
    applies=under_cp(has_mamba),
    good=Example(
        "mlm", "--context-parallel-size 4 --hybrid-layer-pattern M*M- --hidden-size 1024 --mamba-num-groups 8"
    ),
    bad=Example("mlm", "--context-parallel-size 3 --hybrid-layer-pattern M*M- --hidden-size 1024 --mamba-num-groups 8"),
)
def mamba_heads_and_groups_divide(v: View) -> Problem | None:
    """Mamba heads and groups divide evenly over tensor and context parallelism.

    Mamba layers trade sequence shards for head shards over the whole CP group, whatever cp_comm_type and the
    hierarchical sizes say. Each rank needs whole heads; groups are split, or replicated if there are fewer groups than
    ranks.
    """
    groups = v.mamba_num_groups
    if groups is None:
        raise Unknown("mamba_num_groups")
    heads, tp = mamba_heads(v), int(v.tp)
    if not mamba_fits(heads, groups, tp, int(v.cp)):
        smaller = [size for size in smaller_divisors(int(v.cp)) if mamba_fits(heads, groups, tp, size)]
        return Problem(
            message="Mamba needs whole heads and groups on each rank, and these cannot be split evenly: building the "
            "model fails",
            found=f"{heads} Mamba heads and {groups} groups at tensor_model_parallel_size {tp} and "
            f"context_parallel_size {v.cp}",
            wanted=f"heads a multiple of {tp * v.cp}; groups per tensor rank a multiple or a divisor of {v.cp}",
            facts=("cp", "mamba_num_heads", "mamba_num_groups", "tp"),
            fixes=tuple(Fix({"cp": size}, over("context", size)) for size in smaller[:1]),
        )
    if "a2a+p2p" in layer_types(v) and v.get("hcp_sizes"):
        return Problem(
            message="the Mamba layers ignore the levels: their all-to-all spans the whole CP group, nodes included",
            found=f"a2a+p2p in a model with Mamba layers at context_parallel_size {v.cp}",
            wanted="a CP group inside a node, where Mamba layers dominate",
            facts=("cp_comm_type", "hybrid_pattern", "cp"),
            severity="warning",
            effect="slow",
            stage="training",
        )
    return None


@rule(
    "MODEL002",
    "error crash config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "RoPE fusion is not supported for DSAttention", ">=0.16"
        ),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "cp_comm_type=allgather only", ">=0.19", where="checkout"
        ),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "Currently context parallelism is not supported by DSAttention!",
            ">=0.16,<0.19",
        ),
    ),
    applies=lambda v: v.get("attention_variant") == "dsa",
    good=Example(
        "mlm",
        "--context-parallel-size 2 --cp-comm-type all_gather --experimental-attention-variant dsa "
        "--disable-bias-linear --no-rope-fusion",
        "mcore=0.19",
    ),
    bad=Example(
        "mlm", "--context-parallel-size 2 --experimental-attention-variant dsa --disable-bias-linear --no-rope-fusion"
    ),
)
def dsa_gathers_without_fused_rope(v: View) -> Problem | None:
    """DSA uses all_gather and no fused rotary embedding.

    Each query in DSA selects its keys from the whole sequence, so CP gathers them. megatron-core before 0.19 has no CP
    for it at all, and no version has a fused rotary embedding. Both spellings, all_gather and allgather, are accepted
    here.
    """
    # What holds in every version comes first; the version is requested only where it decides.
    types = layer_types(v) if v.get("cp") != 1 else ()
    spread = [kind for kind in dict.fromkeys(types) if kind.replace("_", "").lower() != "allgather"]
    if v.cp > 1 and spread:
        return Problem(
            message="DSA only supports gathering K and V of the whole sequence: the model config is rejected",
            found=f"cp_comm_type {' '.join(spread)} with experimental_attention_variant dsa",
            wanted="all_gather in every layer, and megatron-core 0.19 or newer",
            facts=("cp_comm_type", "attention_variant", "cp"),
            fixes=type_fixes(v, "all_gather"),
        )
    if v.cp > 1 and not v.at_least("mcore", MCORE_DSA_CP):
        return Problem(
            message="this megatron-core has no context parallelism for DSA: the model config is rejected",
            found=f"experimental_attention_variant dsa at context_parallel_size {v.cp} with megatron-core {v.mcore}",
            wanted="megatron-core 0.19 or newer",
            facts=("attention_variant", "cp", "mcore"),
            fixes=(Fix({"cp": 1}, "no context parallelism"),),
        )
    if v.rope_fusion:
        return Problem(
            message="DSA has no fused rotary embedding: the model config is rejected",
            found="apply_rope_fusion with experimental_attention_variant dsa",
            wanted="apply_rope_fusion off",
            facts=("rope_fusion", "attention_variant"),
            fixes=(Fix({"rope_fusion": False}, "the rotary embedding is not fused"),),
        )
    return None


@rule(
    "MODEL003",
    "error crash config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "self.linear_num_key_heads % tp_cp_size",
            ">=0.18",
            where="checkout",
            branches=("main",),
        ),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "Gated delta net does not support context parallel for now",
            ">=0.16,<0.18",
        ),
        GATED_DELTA_NET.says("GatedDeltaNet", "# TODO: support CP", ">=0.17,<0.18", where="checkout"),
    ),
    applies=_has_delta_net,
    good=Example(
        "mlm",
        "--context-parallel-size 2 --experimental-attention-variant gated_delta_net --linear-attention-freq 4",
        "mcore=0.19",
    ),
    bad=Example(
        "mlm", "--context-parallel-size 32 --experimental-attention-variant gated_delta_net --linear-attention-freq 4"
    ),
)
def gated_delta_net_heads_divide(v: View) -> Problem | None:
    """The heads of a gated delta net divide evenly over TP and CP.

    Like Mamba, gated delta nets split heads over the whole CP group; before 0.18 they have no CP at all. The config
    constructor checks only the attention variant: a G in a layer pattern gets past it, and 0.17 then trains on each
    rank's part of the sequence as if it were a whole sequence. The dev branch splits heads over tensor parallelism
    alone, unless linear_cp_mode is headwise.
    """
    by_pattern = v.get("attention_variant") not in _GDN
    on_dev = v.get("mcore_branch") == "dev"
    if v.known("mcore") and not on_dev and (without := _delta_net_without_cp(v, by_pattern)) is not None:
        return without
    keys, values = v.linear_num_key_heads, v.linear_num_value_heads
    if keys is None or values is None:
        return None
    tp, cp = int(v.tp), 1 if on_dev else int(v.cp)
    if keys % (tp * cp) or values % (tp * cp):
        fits = [size for size in smaller_divisors(cp) if not keys % (tp * size) and not values % (tp * size)]
        return Problem(
            message="a gated delta net needs whole heads on each rank, and these cannot be split evenly: "
            + ("the first forward pass fails" if by_pattern else "the model config is rejected"),
            found=f"{keys} key and {values} value heads at tensor_model_parallel_size {tp} and context_parallel_size "
            f"{v.cp}",
            wanted=f"both a multiple of {tp * cp}",
            facts=("linear_num_key_heads", "linear_num_value_heads", "tp", "cp"),
            fixes=tuple(Fix({"cp": size}, over("context", size)) for size in fits[:1]),
            stage="first-forward" if by_pattern else None,
        )
    return None if on_dev else _delta_net_without_cp(v, by_pattern)


def _delta_net_without_cp(v: View, by_pattern: bool) -> Problem | None:
    """What a release without CP for gated delta nets does under CP. Requests the release if CP is on."""
    if v.cp == 1 or v.at_least("mcore", MCORE_DELTA_NET_CP):  # what 0.18 does is KNOWN003
        return None
    return Problem(
        message="this megatron-core has no context parallelism for gated delta nets: "
        + ("each rank treats its part of a sequence as a whole one" if by_pattern else "the model config is rejected"),
        found=f"context_parallel_size {v.cp} with megatron-core {v.mcore}",
        wanted="megatron-core 0.19 or newer",
        facts=("hybrid_pattern" if by_pattern else "attention_variant", "cp", "mcore"),
        fixes=(Fix({"cp": 1}, "no context parallelism"),),
        effect="silent" if by_pattern else None,
        stage="never" if by_pattern else None,
    )


@rule(
    "MODEL007",
    "error crash init",
    source=(
        BRIDGE_PACKED_SEQ_UTILS.says(
            "get_packed_seq_params", "cp_partition_mode available in dev MCore only.", ">=0.7"
        ),
    ),
    applies=under_cp(lambda v: v.get("attention_variant") == "dsv4_hybrid"),
    good=Example("bridge", f"{_DSV4} model.cp_partition_mode=contiguous {_DSV4_PACKED}", "mcore_branch=dev te=2.18"),
    bad=Example("bridge", f"{_DSV4} model.cp_partition_mode=contiguous {_DSV4_PACKED}", "mcore_branch=main te=2.18"),
)
def deepseek_v4_is_on_the_dev_branch(v: View) -> Problem | None:
    """DeepSeek-V4's attention uses CP only with packed rows, on the dev branch.

    Its compressor passes boundary states to the next rank, so each rank holds one contiguous piece (CP028) of a packed
    row. Only megatron-core's dev branch supports this (since July 2026); no release has this attention
    (NVIDIA/Megatron-LM#5643, #6158).
    """
    wanted = "megatron-core's dev branch, packed rows and cp_partition_mode contiguous"
    if v.get("mcore_branch") == "main":
        lacks, facts = f"with megatron-core {v.get('mcore', 'of main')}", ("attention_variant", "cp", "mcore")
    elif not v.thd:
        lacks, facts = "with rows that are not packed", ("packing", "attention_variant", "cp")
    else:
        return None
    return Problem(
        message="DSv4 hybrid attention has no context parallelism outside the dev branch's contiguous mode: building "
        "the model or the first forward pass fails",
        found=f"experimental_attention_variant dsv4_hybrid at context_parallel_size {v.cp} {lacks}",
        wanted=wanted,
        facts=facts,
        fixes=(Fix({"cp": 1}, "no context parallelism"),),
    )
