"""Sequence lengths: what they must be divisible by, and how long they may be with a dense mask."""

from __future__ import annotations

from megatron_hcp.core.fits import FP8_TOKENS, chunks_fit, has_huge_mask, tokens_fit
from megatron_hcp.core.shards import round_up
from megatron_hcp.rules.cp.view import cp_may_be_on, sequence_multiple, under_cp
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, BRIDGE_CONFIG, GPT_DATASET, MAPPINGS, TE_MXFP8_TENSOR, TE_UTILS
from megatron_hcp.rules.view import View

_INFERENCE = ("inference", "text_generation", "generate")
"""Words in the names of Megatron-LM's programs that answer prompts: they have no dataloader."""


def _makes_dense_masks(v: View) -> bool:
    if any(word in str(v.get("script")) for word in _INFERENCE):
        return False
    if v.dialect == "bridge":
        return v.get("skip_attention_mask") is False
    return v.launch.dialect == "mlm" and bool(v.attention_mask_in_dataloader) and not v.get("inter_document_masking")


def _lengths(v: View, multiple: int) -> tuple[Fix, ...]:
    """Sequence lengths that fit: the next longer one, or the next shorter one if the model has too few positions."""
    longer = round_up(int(v.seq_length), multiple)
    most = v.get("max_position_embeddings")
    if most is None or longer <= most:
        return (_length(v, longer, multiple),)
    shorter = min(int(v.seq_length), most) // multiple * multiple
    return (_length(v, shorter, multiple),) if shorter else ()


def _length(v: View, length: int, multiple: int) -> Fix:
    """A sequence length, in the model and (Bridge) in the dataset."""
    edits = {"seq_length": length}
    if v.get("dataset_seq_length") is not None:
        edits["dataset_seq_length"] = length
    return Fix(edits, f"sequences of {length} tokens, a multiple of {multiple}")


def _splits_rows_over_tp(v: View) -> bool:
    """Whether sequence parallelism splits rows of seq_length tokens, --sft included: other packing is PACK001's."""
    return (
        v.dialect in ("mlm", "bridge", "bridge-provider")
        and (cp_may_be_on(v) or (v.get("tp") or 1) > 1)
        and v.get("tp") != 1
        and bool(v.sequence_parallel)
        and (not v.get("thd") or v.get("packing") == "sft")
        and not v.get("vision")
    )


def _trains_dense_rows_in_fp8(v: View) -> bool:
    return (
        v.get("fp8") is not None
        and v.dialect in ("mlm", "bridge", "bridge-provider")
        and not v.get("thd")
        and v.fp8_recipe in FP8_TOKENS
    )


@rule(
    "CP024",
    "warning oom training",
    source=(GPT_DATASET.says("_get_ltor_masks_and_position_ids", "torch.ones((seq_length, seq_length)", ">=0.12"),),
    applies=_makes_dense_masks,
    good=Example("mlm", "--context-parallel-size 4 --seq-length 8192"),
    bad=Example("mlm", "--context-parallel-size 4 --seq-length 131072"),
)
def long_sequences_have_no_dense_mask(v: View) -> Problem | None:
    """The dataloader doesn't build a dense attention mask for long sequences.

    Megatron-LM's datasets build a square mask for every sample unless told not to. Causal attention ignores it, but it
    is still built, pinned and broadcast, whatever the CP size: at 131,072 tokens it takes 16 GiB per sample.
    """
    length = v.seq_length
    if length is None or not has_huge_mask(length):
        return None
    mlm = v.dialect == "mlm"
    off = {"attention_mask_in_dataloader": False} if mlm else {"skip_attention_mask": True}
    return Problem(
        message=f"every sample carries a dense mask of {length * length / 2**30:.0f} GiB that causal attention ignores:"
        " dataloader workers run out of memory or hang",
        found=f"a mask from the dataloader at seq_length {length}",
        wanted="no mask from the dataloader",
        facts=("attention_mask_in_dataloader" if mlm else "skip_attention_mask", "seq_length"),
        fixes=(Fix(off, "Transformer Engine applies the causal mask itself"),),
    )


@rule(
    "CP001",
    "error crash config",
    source=(
        ARGUMENTS.says("validate_args", "args.seq_length % (args.context_parallel_size * 2) == 0", ">=0.12"),
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate", "self.model.seq_length % (self.model.context_parallel_size * 2) == 0", ">=0.2"
        ),
    ),
    applies=lambda v: v.dialect in ("mlm", "bridge", "bridge-provider") and cp_may_be_on(v),
    good=Example("mlm", "--context-parallel-size 4 --seq-length 4096"),
    bad=Example("mlm", "--context-parallel-size 3 --seq-length 4096"),
)
def sequence_divides_into_chunks(v: View) -> Problem | None:
    """The sequence length is a multiple of twice the context-parallel size.

    Causal attention is balanced by giving rank r the chunks r and 2 CP - 1 - r of 2 CP. Megatron-LM's command line and
    Bridge's validation reject other lengths; megatron-core itself fails in a tensor view on the first batch.
    """
    length, chunks = v.seq_length, 2 * v.cp
    if length is None or chunks_fit(length, v.cp):
        return None
    direct = v.dialect == "bridge-provider"
    return Problem(
        message="the sequence cannot be split into the 2 x CP chunks that balance the ranks"
        + (": a tensor view fails on the first batch" if direct else ": argument validation fails"),
        found=f"seq_length {length} at context_parallel_size {v.cp}",
        wanted=f"a multiple of {chunks}",
        facts=("seq_length", "cp"),
        fixes=_lengths(v, sequence_multiple(v)),
        severity="warning" if direct else None,
        stage="first-forward" if direct else None,
    )


@rule(
    "CP002",
    "error crash first-forward",
    source=(
        MAPPINGS.says(
            "_split_along_first_dim",
            "First dimension of the tensor should be divisible by tensor parallel size",
            ">=0.12",
        ),
    ),
    applies=_splits_rows_over_tp,
    good=Example(
        "mlm",
        "--context-parallel-size 2 --tensor-model-parallel-size 6 --sequence-parallel "
        "--seq-length 6144 --num-attention-heads 12",
    ),
    bad=Example(
        "mlm",
        "--context-parallel-size 2 --tensor-model-parallel-size 6 --sequence-parallel "
        "--seq-length 4096 --num-attention-heads 12",
    ),
)
def sequence_divides_over_tp(v: View) -> Problem | None:
    """With sequence parallelism, a rank's tokens are divisible by the TP size.

    After the split over CP, sequence parallelism scatters each part over the tensor-parallel ranks. Neither Megatron-LM
    nor Bridge's pre-training path checks the product; the embedding asserts in the first forward pass.
    """
    length, ranks = v.seq_length, v.cp * v.tp
    if v.tp == 1 or length is None or length % ranks == 0:
        return None
    return Problem(
        message="sequence parallelism cannot split a rank's part of the sequence: the embedding fails, 'First "
        "dimension of the tensor should be divisible by ...'",
        found=f"seq_length {length} at tensor_model_parallel_size {v.tp} and context_parallel_size {v.cp}",
        wanted=f"a multiple of {ranks}",
        facts=("seq_length", "tp", "cp"),
        fixes=(*_lengths(v, sequence_multiple(v)), Fix({"sequence_parallel": False}, "no sequence parallelism")),
    )


@rule(
    "CP003",
    "error crash first-forward",
    source=(
        TE_UTILS.says("assert_dim_for_fp8_exec", "math.prod(tensor.shape[:-1]) % 8", ">=2.4"),
        TE_MXFP8_TENSOR.says("MXFP8Quantizer.is_quantizable", "% MXFP8_BLOCK_SCALING_SIZE != 0", ">=2.2"),
    ),
    applies=under_cp(_trains_dense_rows_in_fp8),
    good=Example("mlm", "--context-parallel-size 2 --fp8-format hybrid --seq-length 4096 --micro-batch-size 1"),
    bad=Example("mlm", "--context-parallel-size 2 --fp8-format hybrid --seq-length 4104 --micro-batch-size 1"),
)
def fp8_blocks_are_whole(v: View) -> Problem | None:
    """In FP8 training, each rank holds whole blocks of tokens.

    Transformer Engine asserts a multiple of 8 tokens, cuBLAS needs 16 in the weight gradient, and MXFP8 scales blocks
    of 32. CP divides the tokens of a rank, so short sequences violate this first.
    """
    if v.seq_length is None or v.micro_batch_size is None:
        return None
    wanted = FP8_TOKENS[v.fp8_recipe]
    tokens = v.seq_length * v.micro_batch_size
    if tokens_fit(tokens, v.cp, wanted):
        return None  # a fractional number of tokens is CP001's
    return Problem(
        message="FP8 matrix products need whole blocks of tokens on each rank: Transformer Engine or cuBLAS fails",
        found=f"{tokens // v.cp} tokens per rank (seq_length {v.seq_length} x micro_batch_size {v.micro_batch_size} "
        f"/ context_parallel_size {v.cp})",
        wanted=f"a multiple of {wanted} for the {v.fp8_recipe} recipe",
        facts=("seq_length", "micro_batch_size", "cp"),
        fixes=_lengths(v, sequence_multiple(v) * wanted),
    )
