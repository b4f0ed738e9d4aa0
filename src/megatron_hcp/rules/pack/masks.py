"""Packed data: the masks and row splits that attention supports."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    BRIDGE_PACKED_SEQ_UTILS,
    LM_DATA_SCHEDULE,
    PRETRAIN_GPT,
    SFT_DATASET,
    TE_CONTEXT_PARALLEL,
    TRANSFORMER_CONFIG,
)
from megatron_hcp.rules.view import View

_CONTIGUOUS = ("dsv4_hybrid", "gated_delta_net", "gdn", "gdn2")


@rule(
    "PACK006",
    "error silent never",
    source=(
        PRETRAIN_GPT.says(
            "get_batch", "use_per_sequence_balancing=args.dataloader_inter_document", ">=0.19", branches=("main",)
        ),
    ),
    applies=lambda v: v.dialect == "mlm" and bool(v.get("inter_document_masking")),
    good=Example("mlm", "--dataloader-inter-document-masking --context-parallel-size 1"),
    bad=Example("mlm", "--dataloader-inter-document-masking --context-parallel-size 2"),
)
def document_masks_exclude_cp(v: View) -> Problem | None:
    """Inter-document masking is used without context parallelism.

    Document lengths aren't divisible by 2 x CP, so Megatron-LM slices the row as a whole and then passes Transformer
    Engine the document boundaries of the whole row. Attention and the rotary embedding treat the slice as if each
    document had been sliced. Upstream's test compares only shapes.
    """
    if v.cp == 1 or v.sft:
        return None
    return Problem(
        message="each rank gets a zigzag slice of the row, but attention and rotary positions expect a slice of each "
        "document: positions and masks are silently wrong",
        found=f"--dataloader-inter-document-masking at context_parallel_size {v.cp}",
        wanted="context_parallel_size 1, or no inter-document masking",
        facts=("inter_document_masking", "cp"),
        fixes=(Fix({"inter_document_masking": False}, "documents in a row attend to each other"),),
    )


@rule(
    "PACK012",
    "error crash config",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp",
            "No-load-balance THD partitioning requires cp_comm_type='all_gather'.",
            ">=2.19",
            branches=(),
        ),
        BRIDGE_PACKED_SEQ_UTILS.says(
            "get_packed_seq_params", "cp_partition_mode available in dev MCore only.", ">=0.6"
        ),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "cp_partition_mode='contiguous' with context parallelism currently ",
            ">=0.19",
            where="checkout",
            branches=("dev",),
        ),
    ),
    applies=lambda v: v.get("cp_partition_mode") == "contiguous",
    good=Example(
        "mlm",
        "--context-parallel-size 2 --experimental-attention-variant gated_delta_net --linear-attention-freq 4 "
        "--cp-partition-mode contiguous --sequence-packing-scheduler dp_balanced",
        "mcore=0.19.0 mcore_branch=dev",
    ),
    bad=Example(
        "mlm",
        "--context-parallel-size 2 --cp-partition-mode contiguous --sequence-packing-scheduler dp_balanced",
    ),
)
def contiguous_chunks_suit_the_attention(v: View) -> Problem | None:
    """Contiguous chunks are used only with attention that supports them.

    megatron-core's dev branch can give each rank one contiguous chunk of packed data instead of two, for DeepSeek-V4's
    hybrid attention and gated delta nets. Its config constructor rejects everything else; releases don't have the key.
    Transformer Engine 2.19 has its own layout without load balancing (packed data, all_gather), which no launcher can
    select yet.
    """
    if v.cp == 1:
        return None
    back = Fix({"cp_partition_mode": "zigzag"}, "two chunks of each sequence per rank")
    if v.attention_variant not in _CONTIGUOUS:
        return Problem(
            message="attention would treat contiguous chunks as zigzag chunks: the model config is rejected, or the "
            "key doesn't exist",
            found=f"cp_partition_mode contiguous with experimental_attention_variant {v.attention_variant}",
            wanted="dsv4_hybrid or gated_delta_net on megatron-core's dev branch, or zigzag",
            facts=("cp_partition_mode", "attention_variant", "cp"),
            fixes=(back,),
        )
    if v.dialect != "mlm" or v.sequence_packing_scheduler is not None:
        return None
    return Problem(
        message="contiguous chunks are supported only for rows packed by a scheduler: the model config is rejected",
        found="cp_partition_mode contiguous without sequence_packing_scheduler",
        wanted="a sequence_packing_scheduler, or zigzag",
        facts=("cp_partition_mode", "sequence_packing_scheduler", "cp"),
        fixes=(back,),
    )


@rule(
    "PACK013",
    "error crash training",
    source=(SFT_DATASET.says("SFTDataset.__getitem__", "assert not self.config.create_attention_mask", ">=0.16"),),
    applies=lambda v: v.dialect == "mlm" and bool(v.get("sft")),
    good=Example("mlm", "--sft --no-create-attention-mask-in-dataloader"),
    bad=Example("mlm", "--sft"),
)
def sft_gets_no_mask(v: View) -> Problem | None:
    """Fine-tuning with --sft requests no mask from the dataloader.

    The --sft dataset returns boundaries instead of a mask and asserts that none is requested; the mask is on by
    default. Inter-document masking switches it off, and the dev branch's mock dataset never builds one.
    """
    if v.inter_document_masking or (v.get("mcore_branch") == "dev" and v.mock_data):
        return None
    if not v.attention_mask_in_dataloader or (v.known("mcore") and not v.at_least("mcore", "0.16")):
        return None  # before 0.16 --sft didn't pack, and built masks
    return Problem(
        message="the fine-tuning dataset builds no mask and asserts that none is requested: the first sample fails",
        found="--sft with a mask from the dataloader (the default)",
        wanted="--no-create-attention-mask-in-dataloader",
        facts=("attention_mask_in_dataloader", "sft"),
        fixes=(Fix({"attention_mask_in_dataloader": False}, "packed attention needs no mask"),),
    )


_ON_DEV = "mcore=0.19.0 mcore_branch=dev te=2.19 world_size=8"
_SCHEDULED = "--sequence-packing-scheduler dp_balanced --attention-backend auto --kv-channels"


@rule(
    "PACK023",
    "error crash first-forward",
    source=(
        LM_DATA_SCHEDULE.says(
            "get_batch_on_this_rank_for_sequence_packing", "pad_between_seqs=True", ">=0.19", branches=("dev",)
        ),
    ),
    applies=lambda v: (
        v.dialect == "mlm"
        and v.get("mcore_branch") == "dev"
        and bool(v.get("sequence_packing_scheduler") or v.get("dynamic_context_parallel"))
        and not v.get("mla")
    ),
    good=Example("mlm", f"{_SCHEDULED} 128", _ON_DEV),
    bad=Example("mlm", f"{_SCHEDULED} 256", _ON_DEV),
)
def scheduled_rows_have_a_backend(v: View) -> Problem | None:
    """Rows of dev's packing scheduler have heads narrower than 256 channels.

    The scheduler's batch always says that there is padding between sequences. Transformer Engine's FlashAttention then
    is out, and cuDNN doesn't train heads of 256 channels: no attention backend is left (NVIDIA/Megatron-LM#7417, open
    as of 2026-09). Transformer Engine 2.21 may train such heads; it was not read.
    """
    if v.head_dim is None or v.head_dim < 256 or (v.known("te") and v.at_least("te", "2.21")):
        return None
    return Problem(
        message="no attention backend takes these rows: the first forward pass fails",
        found=f"kv_channels {v.head_dim} with rows that dev's packing scheduler marks as padded",
        wanted="heads of fewer than 256 channels, a branch with NVIDIA/Megatron-LM#7417, or no packing scheduler",
        facts=("head_dim", "sequence_packing_scheduler"),
    )
