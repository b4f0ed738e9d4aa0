"""Context parallelism: what the sequence and the heads must divide by."""

from __future__ import annotations

from math import gcd

from hcp.rules.cp_view import cp_may_be_on, layer_types, round_up, sequence_multiple, smaller_divisors, switch_types
from hcp.rules.rule import Example, Fix, Problem, View, rule
from hcp.rules.upstream import (
    ARGUMENTS,
    BRIDGE_CONFIG,
    BRIDGE_MOE_DOC,
    MAPPINGS,
    TE_CONTEXT_PARALLEL,
    TE_MXFP8_TENSOR,
    TE_UTILS,
    TRANSFORMER_CONFIG,
)


def _longer(v: View, multiple: int) -> Fix:
    """A sequence length that fits, in the model and (Bridge) in the dataset."""
    length = round_up(int(v.seq_length), multiple)
    edits = {"seq_length": length}
    if v.get("dataset_seq_length") is not None:
        edits["dataset_seq_length"] = length
    return Fix(edits, f"sequences of {length} tokens, a multiple of {multiple}")


def _splits_over_tp(v: View) -> bool:
    """Dense rows whose length the launch states: packed rows have a length of their own (PACK001)."""
    return (
        v.kind in ("mlm", "bridge", "bridge-provider")
        and cp_may_be_on(v)
        and v.get("tp") != 1
        and bool(v.sequence_parallel)
        and not v.get("thd")
        and not v.get("vision")
    )


_FP8_TOKENS = {"delayed": 16, "tensorwise": 16, "mxfp8": 32}


def _fp8_rows(v: View) -> bool:
    return (
        v.get("fp8") is not None
        and v.kind in ("mlm", "bridge", "bridge-provider")
        and cp_may_be_on(v)
        and not v.get("thd")
        and v.fp8_recipe in _FP8_TOKENS
    )


def _flat_a2a(v: View) -> bool:
    # Beside hierarchical layers it is HCP019, which has other ways out.
    return cp_may_be_on(v) and "a2a" in layer_types(v) and "a2a+p2p" not in layer_types(v)


_SHORT = 1024


@rule(
    "CP001",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        ARGUMENTS.says("validate_args", "args.seq_length % (args.context_parallel_size * 2) == 0"),
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate", "self.model.seq_length % (self.model.context_parallel_size * 2) == 0", ">=0.3"
        ),
    ),
    applies=lambda v: v.kind != "verl" and cp_may_be_on(v),
    good=Example("mlm", "--context-parallel-size 4 --seq-length 4096"),
    bad=Example("mlm", "--context-parallel-size 3 --seq-length 4096"),
)
def sequence_divides_into_chunks(v: View) -> Problem | None:
    """The sequence length is a multiple of twice the context-parallel size.

    Causal attention is balanced by giving rank r the chunks r and 2 CP - 1 - r of 2 CP. Megatron-LM's command line
    and Bridge's validation refuse other lengths; megatron-core itself fails in a view of the first batch.
    """
    length = v.seq_length
    if v.cp == 1 or length is None or length % (2 * v.cp) == 0:
        return None
    direct = v.kind == "bridge-provider"
    return Problem(
        message="the sequence cannot be cut into the 2 x CP chunks that balance the ranks"
        + (": a tensor view fails in the first batch" if direct else ": the launch stops while it reads its arguments"),
        found=f"seq_length {length} at context_parallel_size {v.cp}",
        wanted=f"a multiple of {2 * v.cp}",
        facts=("seq_length", "cp"),
        fixes=(_longer(v, sequence_multiple(v)),),
        severity="warning" if direct else None,
        stage="first-forward" if direct else None,
    )


@rule(
    "CP002",
    severity="error",
    effect="crash",
    stage="first-forward",
    source=(
        MAPPINGS.says(
            "_split_along_first_dim",
            "First dimension of the tensor should be divisible by tensor parallel size",
            ">=0.12",
        ),
    ),
    applies=_splits_over_tp,
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
    """With sequence parallelism a rank's part of the sequence divides over tensor parallelism.

    After the split over CP, sequence parallelism scatters the rest over the tensor-parallel ranks. Neither
    Megatron-LM nor Bridge's pre-training path checks the product; the embedding asserts in the first forward.
    """
    length = v.seq_length
    if v.cp == 1 or v.tp == 1 or length is None or length % (v.tp * v.cp) == 0:
        return None
    return Problem(
        message="sequence parallelism cannot split a rank's part of the sequence: the embedding stops with "
        "'First dimension of the tensor should be divisible by tensor parallel size'",
        found=f"seq_length {length} at tensor_model_parallel_size {v.tp} and context_parallel_size {v.cp}",
        wanted=f"a multiple of {v.tp * v.cp}",
        facts=("seq_length", "tp", "cp"),
        fixes=(_longer(v, sequence_multiple(v)), Fix({"sequence_parallel": False}, "no sequence parallelism")),
    )


@rule(
    "CP003",
    severity="error",
    effect="crash",
    stage="first-forward",
    source=(
        TE_UTILS.says("assert_dim_for_fp8_exec", "math.prod(tensor.shape[:-1]) % 8", ">=2.4"),
        TE_MXFP8_TENSOR.says("MXFP8Quantizer.is_quantizable", "% MXFP8_BLOCK_SCALING_SIZE != 0", ">=2.4"),
    ),
    applies=_fp8_rows,
    good=Example("mlm", "--context-parallel-size 2 --fp8-format hybrid --seq-length 4096 --micro-batch-size 1"),
    bad=Example("mlm", "--context-parallel-size 2 --fp8-format hybrid --seq-length 4104 --micro-batch-size 1"),
)
def fp8_blocks_are_whole(v: View) -> Problem | None:
    """FP8 training has whole blocks of tokens on each rank.

    Transformer Engine asserts that tokens come in eights, cuBLAS wants sixteens in the weight gradient, MXFP8
    scales blocks of 32. CP divides the tokens of a rank, so short sequences break it first.
    """
    if v.cp == 1 or v.seq_length is None or v.micro_batch_size is None:
        return None
    wanted = _FP8_TOKENS[v.fp8_recipe]
    tokens = v.seq_length * v.micro_batch_size
    if tokens % v.cp or tokens // v.cp % wanted == 0:
        return None  # not a whole number of tokens is CP001
    return Problem(
        message="FP8 matrix products need whole blocks of tokens on each rank: Transformer Engine or cuBLAS stops",
        found=f"{tokens // v.cp} tokens per rank (seq_length {v.seq_length} x micro_batch_size {v.micro_batch_size} "
        f"/ context_parallel_size {v.cp})",
        wanted=f"a multiple of {wanted} for the {v.fp8_recipe} recipe",
        facts=("seq_length", "micro_batch_size", "cp"),
        fixes=(_longer(v, sequence_multiple(v) * wanted),),
    )


@rule(
    "CP007",
    severity="error",
    effect="crash",
    stage="first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "AttnFuncWithCPAndQKVOA2A.forward", "q.shape[-2] % cp_size == 0 and k.shape[-2] % cp_size == 0", ">=2.4"
        ),
    ),
    applies=_flat_a2a,
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
def heads_divide_for_a2a(v: View) -> Problem | None:
    """With a2a the heads of a rank divide by the context-parallel size.

    a2a exchanges sequence for heads: each CP rank takes 1/CP of the query and of the KV heads that its
    tensor-parallel rank holds. Only Transformer Engine checks it, in the first forward, after the model was built
    and the checkpoint loaded. Fewer KV heads than tensor-parallel ranks leave one per rank.
    """
    if v.cp == 1:
        return None
    heads, kv_heads = v.heads_per_rank, v.kv_heads_per_rank
    if heads % v.cp == 0 and kv_heads % v.cp == 0:
        return None
    return Problem(
        message="a2a deals whole heads to the CP ranks and there are not enough of them: the first forward stops",
        found=f"{heads} query and {kv_heads} KV heads per tensor-parallel rank at context_parallel_size {v.cp}",
        wanted=f"both a multiple of {v.cp}",
        facts=("cp_comm_type", "cp", "kv_heads", "heads", "tp"),
        fixes=(Fix(switch_types(v, ("p2p",)), "a ring: heads stay whole"),),
    )


@rule(
    "CP008",
    severity="error",
    effect="crash",
    stage="config",
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
    """The KV heads are a multiple or a divisor of the tensor-parallel size.

    Each tensor-parallel rank holds whole KV heads, or (megatron-core 0.16 and later) shares one with its
    neighbours. What fits neither is refused when the model config is built.
    """
    groups, tp = v.kv_heads, v.tp
    if groups % tp == 0:
        return None
    if tp % groups == 0:
        if v.at_least("mcore", "0.16"):
            return None
        wanted = f"a multiple of {tp}: megatron-core before 0.16 does not replicate KV heads"
    else:
        wanted = f"a multiple or a divisor of {tp}"
    fitting = gcd(groups, tp)
    return Problem(
        message="the KV heads cannot be divided over the tensor-parallel ranks: the model config is refused",
        found=f"{groups} KV heads at tensor_model_parallel_size {tp}",
        wanted=wanted,
        facts=("kv_heads", "tp"),
        fixes=(Fix({"tp": fitting}, f"tensor parallelism over {fitting} ranks"),),
    )


@rule(
    "PERF001",
    severity="info",
    effect="slow",
    stage="training",
    source=(BRIDGE_MOE_DOC.says("", "seq_len / 4096", ">=0.7"),),
    applies=lambda v: v.kind in ("mlm", "bridge") and cp_may_be_on(v) and v.known("seq_length"),
    good=Example("mlm", "--context-parallel-size 4 --seq-length 16384"),
    bad=Example("mlm", "--context-parallel-size 4 --seq-length 1024"),
)
def slices_hide_communication(v: View) -> Problem | None:
    """A rank's part of the sequence is long enough to hide communication.

    Attention grows with the square of the sequence, the exchange of K and V linearly. Below about a thousand tokens
    per rank matrix products are thin and ring steps are not hidden. Upstream's rule of thumb is one CP rank per
    4096 tokens.
    """
    length = v.seq_length
    if v.cp == 1 or length is None or length >= _SHORT * v.cp:
        return None
    fits = [size for size in smaller_divisors(int(v.cp)) if length >= _SHORT * size]
    return Problem(
        message="each rank's part of the sequence is so short that communication is not hidden behind attention",
        found=f"{length // v.cp} tokens per rank (seq_length {length} at context_parallel_size {v.cp})",
        wanted="about 4096 tokens per rank",
        facts=("cp", "seq_length"),
        fixes=tuple(Fix({"cp": size}, f"context parallelism over {size} ranks") for size in fits[:1]),
    )


RULES = (
    sequence_divides_into_chunks,
    sequence_divides_over_tp,
    fp8_blocks_are_whole,
    heads_divide_for_a2a,
    kv_heads_fit_tp,
    slices_hide_communication,
)
