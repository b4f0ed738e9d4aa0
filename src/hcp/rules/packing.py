"""Packed data: how long each sequence and each row must be, and which data is cut for which attention."""

from __future__ import annotations

from hcp.rules.cp_view import cp_may_be_on, round_up, sequence_multiple
from hcp.rules.rule import Example, Fix, Problem, View, rule
from hcp.rules.upstream import (
    BRIDGE_CONFIG,
    BRIDGE_PACKED_SEQ_UTILS,
    BRIDGE_PACKED_SEQUENCE,
    BRIDGE_PACKING_CONFIG,
    PRETRAIN_GPT,
    SFT_DATASET,
    TE_CONTEXT_PARALLEL,
)

_BRIDGE = ("bridge", "bridge-provider")


def _offline(v: View) -> bool:
    return v.kind in _BRIDGE and v.get("packing") == "offline"


_CONTIGUOUS = ("dsv4_hybrid", "gated_delta_net", "gdn", "gdn2")


@rule(
    "PACK001",
    severity="error",
    effect="crash",
    stage="first-forward",
    source=(TE_CONTEXT_PARALLEL.says("attn_forward_func_with_cp", "cu_seqlens_padded can", ">=2.4"),),
    applies=lambda v: _offline(v) and cp_may_be_on(v),
    good=Example(
        "bridge",
        "model.context_parallel_size=4 dataset.packed_sequence_specs.packed_sequence_size=4096 "
        "dataset.packed_sequence_specs.pad_seq_to_mult=8 model.calculate_per_token_loss=true "
        "ddp.average_in_collective=false",
    ),
    bad=Example(
        "bridge",
        "model.context_parallel_size=4 dataset.packed_sequence_specs.packed_sequence_size=4100 "
        "dataset.packed_sequence_specs.pad_seq_to_mult=8 model.calculate_per_token_loss=true "
        "ddp.average_in_collective=false",
    ),
)
def packed_row_divides_into_chunks(v: View) -> Problem | None:
    """A packed row divides into the chunks that balance the ranks.

    With packed data every sequence is cut into 2 CP chunks by itself, the padding at the end of a row included, so
    the row's length must divide as well, and by tensor x context parallelism where sequence parallelism scatters
    it. Transformer Engine checks the total; per sequence it has a device assert that release builds leave out.
    """
    row = v.packed_sequence_size
    if v.cp == 1 or row is None:
        return None
    wanted = sequence_multiple(v)
    if row % wanted == 0:
        return None
    fits = round_up(row, wanted)
    return Problem(
        message="the last sequence of a packed row ends where the row ends, and cannot be cut for the ranks: the first "
        "batch stops, or tokens are lost",
        found=f"packed_sequence_size {row} at context_parallel_size {v.cp}",
        wanted=f"a multiple of {wanted}",
        facts=("packed_sequence_size", "cp"),
        fixes=(Fix({"packed_sequence_size": fits}, f"rows of {fits} tokens"),),
    )


@rule(
    "PACK002",
    severity="error",
    effect="silent",
    stage="never",
    source=(
        BRIDGE_PACKING_CONFIG.says("PackedSequenceSpecs", "pad_seq_to_mult: int | None = 1", ">=0.7"),
        BRIDGE_PACKED_SEQUENCE.says("PackedSequenceSpecs", "pad_seq_to_mult", ">=0.3,<0.4"),
    ),
    applies=lambda v: _offline(v) and cp_may_be_on(v),
    good=Example(
        "bridge",
        "model.context_parallel_size=2 dataset.packed_sequence_specs.packed_sequence_size=4096 "
        "dataset.packed_sequence_specs.pad_seq_to_mult=4 model.calculate_per_token_loss=true "
        "ddp.average_in_collective=false",
    ),
    bad=Example(
        "bridge",
        "model.context_parallel_size=2 dataset.packed_sequence_specs.packed_sequence_size=4096 "
        "dataset.packed_sequence_specs.pad_seq_to_mult=1 model.calculate_per_token_loss=true "
        "ddp.average_in_collective=false",
    ),
)
def offline_packing_pads_each_sequence(v: View) -> Problem | None:
    """Offline packing pads each sequence to a multiple of twice the context-parallel size.

    The default of pad_seq_to_mult is 1 and Bridge's validation does not look. Lengths that do not divide are
    rounded down per chunk: at CP 2 a row with sequences of 10 and 22 tokens loses tokens 9 and 31 and holds 6 and
    25 twice. Nothing is logged, the loss is merely a little wrong.
    """
    if v.cp == 1:
        return None
    padded = v.pad_seq_to_mult or 1
    if padded % (2 * v.cp) == 0:
        return None
    wanted = sequence_multiple(v)
    fact = v.fact("pad_seq_to_mult")
    return Problem(
        message="sequences whose length does not divide are cut short: some tokens reach no rank, others two",
        found=f"sequences padded to a multiple of {padded}"
        + (" (the default)" if fact and fact.origin == "default" else "")
        + f" at context_parallel_size {v.cp}",
        wanted=f"a multiple of {2 * v.cp}",
        facts=("pad_seq_to_mult", "packed_sequence_size", "cp"),
        fixes=(Fix({"pad_seq_to_mult": round_up(padded, wanted)}, "each sequence divides; pack the data again"),),
    )


@rule(
    "PACK003",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate", "Micro batch size should be 1 when training with packed sequence", ">=0.3"
        ),
        BRIDGE_CONFIG.says("ConfigContainer.validate", "micro_batch_size should be greater than 1 when using", ">=0.3"),
    ),
    applies=lambda v: v.kind == "bridge" and v.get("packing") in ("offline", "in_batch", "energon"),
    good=Example("bridge", "dataset.packed_sequence_specs.packed_sequence_size=4096 train.micro_batch_size=1"),
    bad=Example("bridge", "dataset.packed_sequence_specs.packed_sequence_size=4096 train.micro_batch_size=2"),
)
def micro_batch_fits_the_packing(v: View) -> Problem | None:
    """Packed rows are micro-batches of one, in-batch packing has more.

    Offline packing puts many sequences into one row; in-batch packing joins the sequences of a micro-batch.
    """
    rows = v.micro_batch_size
    if rows is None:
        return None
    if v.packing == "in_batch":
        if rows > 1:
            return None
        return Problem(
            message="packing inside a micro-batch of one sequence packs nothing: Bridge's validation stops",
            found=f"train.micro_batch_size {rows} with in-batch packing",
            wanted="2 or more",
            facts=("micro_batch_size", "pack_sequences_in_batch"),
            fixes=(Fix({"micro_batch_size": 2}, "two sequences a micro-batch"),),
        )
    if rows == 1 or (v.packing == "energon" and not v.at_least("bridge", "0.7")):
        return None
    return Problem(
        message="a packed row is a micro-batch: Bridge's validation stops",
        found=f"train.micro_batch_size {rows} with packed rows",
        wanted="1, and longer rows",
        facts=("micro_batch_size", "packing"),
        fixes=(Fix({"micro_batch_size": 1}, "one packed row a micro-batch"),),
    )


@rule(
    "PACK006",
    severity="error",
    effect="silent",
    stage="never",
    source=(PRETRAIN_GPT.says("get_batch", "use_per_sequence_balancing=args.dataloader_inter_document"),),
    applies=lambda v: v.kind == "mlm" and bool(v.get("inter_document_masking")),
    good=Example("mlm", "--dataloader-inter-document-masking --context-parallel-size 1"),
    bad=Example("mlm", "--dataloader-inter-document-masking --context-parallel-size 2"),
)
def document_masks_have_no_cp(v: View) -> Problem | None:
    """Masking between documents runs without context parallelism.

    Documents in a row do not divide by 2 CP, so Megatron-LM slices the row as a whole, and then hands Transformer
    Engine the document boundaries of the whole row. Attention and the rotary embedding take the slice for slices of
    documents. Upstream's test compares shapes only.
    """
    if v.cp == 1 or v.sft:
        return None
    return Problem(
        message="each rank gets a zigzag slice of the row while attention and rotary positions expect one of each"
        " document: positions and masks are wrong without a word",
        found=f"--dataloader-inter-document-masking at context_parallel_size {v.cp}",
        wanted="context_parallel_size 1, or no document masking",
        facts=("inter_document_masking", "cp"),
        fixes=(Fix({"inter_document_masking": False}, "documents of a row see each other"),),
    )


@rule(
    "PACK012",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp",
            "No-load-balance THD partitioning requires cp_comm_type='all_gather'.",
            ">=2.19",
        ),
        BRIDGE_PACKED_SEQ_UTILS.says(
            "get_packed_seq_params", "cp_partition_mode available in dev MCore only.", ">=0.7"
        ),
    ),
    applies=lambda v: v.get("cp_partition_mode") == "contiguous",
    good=Example(
        "mlm",
        "--context-parallel-size 2 --experimental-attention-variant gated_delta_net "
        "--cp-partition-mode contiguous --sequence-packing-scheduler dp_balanced",
        "mcore=0.20",
    ),
    bad=Example("mlm", "--context-parallel-size 2 --cp-partition-mode contiguous"),
)
def contiguous_chunks_have_their_attention(v: View) -> Problem | None:
    """Contiguous chunks go with attention that knows them.

    megatron-core's dev branch can give each rank one contiguous chunk of packed data instead of two, for
    DeepSeek-V4's hybrid attention and gated delta nets. Its config constructor refuses the rest; released versions
    do not know the key. Transformer Engine 2.19 has a layout without load balance of its own (packed data,
    all_gather), which no launcher can ask for yet.
    """
    if v.cp == 1:
        return None
    back = Fix({"cp_partition_mode": "zigzag"}, "two chunks of each sequence per rank")
    if v.attention_variant not in _CONTIGUOUS:
        return Problem(
            message="attention would take contiguous chunks for a zigzag: the model config is refused, or the key is"
            " not known at all",
            found=f"cp_partition_mode contiguous with experimental_attention_variant {v.attention_variant}",
            wanted="dsv4_hybrid or gated_delta_net on megatron-core's dev branch, or zigzag",
            facts=("cp_partition_mode", "attention_variant", "cp"),
            fixes=(back,),
        )
    if v.kind != "mlm" or v.sequence_packing_scheduler is not None:
        return None
    return Problem(
        message="contiguous chunks are defined for packed rows of a scheduler alone: the model config is refused",
        found="cp_partition_mode contiguous without sequence_packing_scheduler",
        wanted="a sequence_packing_scheduler, or zigzag",
        facts=("cp_partition_mode", "sequence_packing_scheduler", "cp"),
        fixes=(back,),
    )


@rule(
    "PACK013",
    severity="error",
    effect="crash",
    stage="training",
    source=(SFT_DATASET.says("SFTDataset.__getitem__", "assert not self.config.create_attention_mask"),),
    applies=lambda v: v.kind == "mlm" and bool(v.get("sft")),
    good=Example("mlm", "--sft --no-create-attention-mask-in-dataloader"),
    bad=Example("mlm", "--sft"),
)
def sft_asks_for_no_mask(v: View) -> Problem | None:
    """Fine-tuning with --sft asks the dataloader for no mask.

    The dataset of --sft returns boundaries instead of a mask and asserts it; the mask is on by default.
    """
    if not v.attention_mask_in_dataloader or (v.known("mcore") and not v.at_least("mcore", "0.16")):
        return None  # before 0.16 --sft did not pack, and made masks
    return Problem(
        message="the fine-tuning dataset makes no mask and asserts that none is asked for: the first sample stops",
        found="--sft with a mask from the dataloader (the default)",
        wanted="--no-create-attention-mask-in-dataloader",
        facts=("attention_mask_in_dataloader", "sft"),
        fixes=(Fix({"attention_mask_in_dataloader": False}, "packed attention needs no mask"),),
    )


RULES = (
    packed_row_divides_into_chunks,
    offline_packing_pads_each_sequence,
    micro_batch_fits_the_packing,
    document_masks_have_no_cp,
    contiguous_chunks_have_their_attention,
    sft_asks_for_no_mask,
)
