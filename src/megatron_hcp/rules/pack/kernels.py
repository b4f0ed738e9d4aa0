"""Packed data: the versions and backends that support it under context parallelism."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import comm_types, cp_may_be_on, type_fixes, under_cp
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    BRIDGE_PACKED_SEQ_UTILS,
    EXTENSION_TE,
    TE_ATTENTION_UTILS,
    TE_CONTEXT_PARALLEL,
    TRANSFORMER_CONFIG,
    VERL_ENGINE,
    VERL_MCORE_UTIL,
)
from megatron_hcp.rules.view import View

_PACKED = "dataset.packed_sequence_specs.packed_sequence_size=4096 dataset.packed_sequence_specs.pad_seq_to_mult=4 "
_LOSS = "model.calculate_per_token_loss=true ddp.average_in_collective=false "
_FIRST = {"p2p": "1.8", "a2a": "2.10", "all_gather": "2.18"}
"""The Transformer Engine in which each communication type first supports packed data."""


def _is_packed(v: View) -> bool:
    """Requests whether the data is packed, since so much depends on it."""
    return bool(v.thd)


def _pads_rows_for_flash(v: View) -> bool:
    """Whether rows may have gaps between their sequences, and FlashAttention is the only backend."""
    return v.dialect == "bridge" and v.get("packing") == "offline" and v.get("attention_backend") == "flash"


@rule(
    "PACK004",
    "error crash first-forward",
    source=(
        BRIDGE_PACKED_SEQ_UTILS.says(
            "get_thd_cp_partition_indices",
            "THD context-parallel partitioning requires Megatron-Core >= 0.18.0",
            ">=0.6",
        ),
    ),
    applies=under_cp(lambda v: v.dialect == "bridge" and _is_packed(v)),
    good=Example(
        "bridge",
        "model.context_parallel_size=2 model.cp_comm_type=p2p " + _LOSS + _PACKED,
        "mcore=0.18 bridge=0.6 te=2.18",
    ),
    bad=Example(
        "bridge",
        "model.context_parallel_size=2 model.cp_comm_type=p2p " + _LOSS + _PACKED,
        "mcore=0.16.1 bridge=0.6 te=2.18",
    ),
)
def megatron_core_cuts_packed_rows(v: View) -> Problem | None:
    """Bridge's packed rows are used with a megatron-core that can split them.

    From 0.6 on Bridge leaves splitting packed rows to megatron-core, which supports it since 0.18.
    """
    if (v.known("mcore") and v.at_least("mcore", "0.18")) or not v.at_least("bridge", "0.6"):
        return None
    # Building `found` requests an unknown megatron-core version.
    return Problem(
        message="Bridge relies on megatron-core to split packed rows for CP, which this version cannot do: the first "
        "batch fails",
        found=f"Megatron-Bridge {v.bridge} with megatron-core {v.mcore}",
        wanted="megatron-core 0.18 or newer",
        facts=("mcore", "bridge", "packing", "cp"),
    )


@rule(
    "PACK005",
    "error crash first-forward",
    source=(
        TE_ATTENTION_UTILS.says("get_attention_backend", "padding between sequences, i.e. [a, a, PAD", ">=2.3"),
        TE_ATTENTION_UTILS.says(
            "get_attention_backend", "FA3 supports pad_between_seqs via seqused_q/seqused_k", ">=2.16"
        ),
    ),
    applies=_pads_rows_for_flash,
    good=Example(
        "bridge", _PACKED + "model.attention_backend=flash train.micro_batch_size=1", "te=2.18 flash_attn=3.0 arch=sm90"
    ),
    bad=Example("bridge", _PACKED + "model.attention_backend=flash train.micro_batch_size=1", "te=2.14"),
    limit_of="te",
)
def backend_skips_padding(v: View) -> Problem | None:
    """Rows with padding between sequences use a backend that skips the padding.

    With pad_seq_to_mult above 1 Bridge passes both the real and the padded boundaries. FlashAttention 2 cannot skip the
    gaps and is dropped; before Transformer Engine 2.16 all generations were. With attention_backend=flash no backend is
    left.
    """
    if (v.pad_seq_to_mult or 1) == 1:
        return None
    generation = 0
    if v.at_least("te", "2.16"):
        # It depends on which of the three is installed; only Hopper has the third.
        installed = v.flash_attn
        generation = 0 if installed is None else v.release("flash_attn")[0]
        if (generation == 4 and v.at_least("te", "2.19")) or (generation == 3 and v.arch == "sm90"):
            return None
    return Problem(
        message="padding between the sequences of a row disables this FlashAttention, and the other backends are "
        "already off: the first forward pass fails",
        found=f"attention_backend flash with pad_seq_to_mult {v.pad_seq_to_mult} on Transformer Engine {v.te}"
        + (f" and flash-attention {v.flash_attn}" if generation else ""),
        wanted="attention_backend fused or auto (FlashAttention 3 on Hopper supports padding from Transformer Engine "
        "2.16 on, FlashAttention 4 from 2.19 on)",
        facts=("attention_backend", "pad_seq_to_mult", "te"),
        fixes=(
            Fix({"attention_backend": "fused"}, "cuDNN attention"),
            Fix({"attention_backend": "auto"}, "Transformer Engine chooses"),
        ),
    )


@rule(
    "PACK007",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says("AttnFuncWithCPAndQKVOA2A.forward", 'assert qkv_format != "thd"', ">=2.3,<2.10"),
        TE_CONTEXT_PARALLEL.says(
            "AttnFuncWithCPAndKVAllGather.forward", "THD format requires padding mask type", ">=2.18"
        ),
    ),
    applies=under_cp(_is_packed),
    good=Example(
        "mlm",
        "--context-parallel-size 2 --sft --calculate-per-token-loss --num-attention-heads 8 "
        "--no-create-attention-mask-in-dataloader --cp-comm-type a2a",
        "te=2.10",
    ),
    bad=Example(
        "mlm",
        "--context-parallel-size 2 --sft --calculate-per-token-loss --num-attention-heads 8 "
        "--no-create-attention-mask-in-dataloader --cp-comm-type a2a",
        "te=2.9",
    ),
    limit_of="te",
)
def comm_type_supports_packed_data(v: View) -> Problem | None:
    """This Transformer Engine supports packed data with the communication type.

    The ring supports packed data since 1.8, a2a since 2.10, all_gather since 2.18 (a2a+p2p: HCP014). all_gather
    supports it only with cuDNN attention and FlashAttention 3: for FlashAttention 2 see KNOWN017.
    """
    for kind in comm_types(v):
        first = _FIRST.get(kind)
        if first is None or v.at_least("te", first):
            continue
        return Problem(
            message=f"this Transformer Engine doesn't support packed data with {kind} yet: the first forward pass "
            f"fails",
            found=f"packed data with cp_comm_type {kind} on Transformer Engine {v.te}",
            wanted=f"Transformer Engine {first} or newer, or p2p",
            facts=("cp_comm_type", "packing", "te"),
            fixes=type_fixes(v, "p2p"),
        )
    return None


@rule(
    "PACK008",
    "error crash first-forward",
    source=(
        EXTENSION_TE.says(
            "fused_apply_rotary_pos_emb_thd", "Only TE >= 1.12 supports RoPE fusion for THD format with CP.", ">=0.14"
        ),
        TRANSFORMER_CONFIG.says(
            "MLATransformerConfig.__post_init__", "apply_rope_fusion for MLA only works with YARN RoPE.", ">=0.13"
        ),
    ),
    applies=lambda v: bool(v.get("rope_fusion")) and (bool(v.get("mla")) or (cp_may_be_on(v) and bool(v.get("thd")))),
    good=Example("mlm", "--multi-latent-attention --rope-type yarn --position-embedding-type rope"),
    bad=Example("mlm", "--multi-latent-attention --rope-type rope --position-embedding-type rope"),
)
def fused_rotary_embedding_exists(v: View) -> Problem | None:
    """The fused rotary embedding supports this model and this data.

    Transformer Engine supports the fused embedding for packed data under CP since 1.12. MLA's fused kernel supports
    only YaRN, which the config constructor checks.
    """
    off = Fix({"rope_fusion": False}, "the rotary embedding is not fused")
    if v.get("mla"):
        if v.get("rope_type") != "rope":
            return None
        return Problem(
            message="multi-latent attention supports only YaRN in its fused rotary embedding: the model config is "
            "rejected",
            found="apply_rope_fusion with rope_type rope and multi-latent attention",
            wanted="rope_type yarn, or no fusion",
            facts=("rope_fusion", "rope_type", "mla"),
            fixes=(off,),
            stage="config",
        )
    if v.cp == 1 or v.at_least("te", "1.12"):
        return None
    return Problem(
        message="the fused rotary embedding of this Transformer Engine doesn't support packed data under CP: the "
        "first forward pass fails",
        found=f"apply_rope_fusion with packed data at context_parallel_size {v.cp} on Transformer Engine {v.te}",
        wanted="Transformer Engine 1.12 or newer, or no fusion",
        facts=("rope_fusion", "packing", "te"),
        fixes=(off,),
    )


@rule(
    "PACK010",
    "error crash first-forward",
    source=(
        VERL_MCORE_UTIL.says("preprocess_bshd", "Context parallel size without seq_pack is not supported", ">=0.7"),
        VERL_ENGINE.says(
            "MegatronEngineWithLMHead.postprocess_micro_batch_func",
            "calculate_per_token_loss=True requires use_remove_padding=True",
            ">=0.9",
        ),
    ),
    applies=under_cp(lambda v: v.dialect == "verl" and v.get("use_remove_padding") is False),
    good=Example(
        "verl",
        "actor_rollout_ref.actor.megatron.context_parallel_size=2 actor_rollout_ref.model.use_remove_padding=False "
        "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1000",
        "verl=0.8.0",
    ),
    bad=Example(
        "verl",
        "actor_rollout_ref.actor.megatron.context_parallel_size=2 actor_rollout_ref.actor.use_dynamic_bsz=True "
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1000 actor_rollout_ref.model.use_remove_padding=False "
        "actor_rollout_ref.actor.megatron.override_transformer_config.calculate_per_token_loss=True",
        "verl=0.9.1",
    ),
)
def verl_packs_under_cp(v: View) -> Problem | None:
    """Under context parallelism, verl's data is packed.

    verl 0.7's own workers split only packed data. Later engines also split padded data, but 0.9 and later reject it
    with per-token loss, which several of Bridge's model providers switch on under CP.
    """
    fact = v.fact("use_remove_padding")
    if v.at_least("verl", "0.9"):
        if not v.calculate_per_token_loss:
            return None
        message = "verl rejects per-token loss on padded data: the first training step fails"
        found = "use_remove_padding false with calculate_per_token_loss"
    elif v.at_least("verl", "0.8") or fact is None or not str(fact.key).endswith("megatron.use_remove_padding"):
        return None
    else:
        message = "this verl splits only packed data for CP: the first forward pass fails"
        found = "use_remove_padding false"
    return Problem(
        message,
        f"{found} at context_parallel_size {v.cp} on verl {v.verl}",
        "use_remove_padding true",
        ("use_remove_padding", "cp", "verl"),
        (Fix({"use_remove_padding": True}, "packed data"),),
    )
