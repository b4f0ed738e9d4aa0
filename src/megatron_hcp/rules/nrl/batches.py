"""NeMo-RL: how sequences become micro-batches, under Megatron's context parallelism."""

from __future__ import annotations

from megatron_hcp.core.shards import round_up
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import NEMO_RL_DATA, NEMO_RL_DICT, NEMO_RL_PACKING, NEMO_RL_POLICY, NEMO_RL_SETUP
from megatron_hcp.rules.view import View

_MEGATRON = "policy.megatron_cfg."
_SOUND = (
    f"{_MEGATRON}enabled=true policy.dtensor_cfg.enabled=false {_MEGATRON}tensor_model_parallel_size=2 "
    f"{_MEGATRON}pipeline_model_parallel_size=1 {_MEGATRON}context_parallel_size=2 {_MEGATRON}sequence_parallel=true "
    f"{_MEGATRON}use_fused_linear_logprobs=false policy.sequence_packing.enabled=true "
    "policy.dynamic_batching.enabled=false policy.make_sequence_length_divisible_by=8 "
    "policy.max_total_sequence_length=4096 policy.sequence_packing.train_mb_tokens=8192 "
    "policy.sequence_packing.logprob_mb_tokens=8192 policy.train_global_batch_size=64 "
    "policy.train_micro_batch_size=1 cluster.num_nodes=1 cluster.gpus_per_node=8 "
    "policy.generation.colocated.enabled=true"
)


def _changed(*settings: str) -> Example:
    """The valid example with some settings changed, given as `name=value` without the section."""
    words = _SOUND.split()
    for setting in settings:
        name = setting.partition("=")[0]
        words = [
            word.partition("=")[0] + "=" + setting.partition("=")[2] if word.partition("=")[0].endswith(name) else word
            for word in words
        ]
    return Example("nemo-rl", " ".join(words))


def is_megatron(v: View) -> bool:
    """Whether NeMo-RL trains the policy with Megatron."""
    return v.dialect == "nemo-rl" and v.strategy == "megatron"


def _is_packed(v: View) -> bool:
    return is_megatron(v) and bool(v.sequence_packing)


def _asserts_a_multiple(v: View) -> bool:
    """Whether this NeMo-RL uses the padding as given; before 0.6 it computes its own."""
    return _is_packed(v) and not (v.known("nemo_rl") and not v.at_least("nemo_rl", "0.6"))


@rule(
    "NRL001",
    "error crash first-forward",
    source=(
        NEMO_RL_DATA.says(
            "_get_pack_sequence_parameters_for_megatron",
            "pad_individual_seqs_to_multiple_of % minimum_pad_factor == 0",
            ">=0.6",
        ),
    ),
    applies=_asserts_a_multiple,
    good=Example("nemo-rl", _SOUND),
    bad=_changed("make_sequence_length_divisible_by=2"),
)
def packed_sequences_divide_over_cp_and_tp(v: View) -> Problem | None:
    """Packed sequences are padded to 2 x CP (x TP with sequence parallelism).

    NeMo-RL asserts this for policy.make_sequence_length_divisible_by in the first forward pass, after the model has
    been converted and loaded and the first rollouts have been generated. Its base configuration ties the setting to TP
    only.
    """
    wanted = 2 * v.cp if v.cp > 1 else 1
    if v.tp > 1 and v.sequence_parallel:
        wanted *= v.tp
    if v.sequence_multiple is None or v.sequence_multiple % wanted == 0:
        return None
    return Problem(
        message="packed sequences cannot be split over the ranks: the first forward pass fails with 'is not a "
        "multiple of "
        "minimum_pad_factor'",
        found=f"make_sequence_length_divisible_by {v.sequence_multiple} at TP {v.tp} and CP {v.cp}",
        wanted=f"a multiple of {wanted}",
        facts=("sequence_multiple", "cp", "tp"),
        fixes=(Fix({"sequence_multiple": round_up(v.sequence_multiple, wanted)}, f"padding to multiples of {wanted}"),),
    )


@rule(
    "NRL002",
    "error crash init",
    source=(
        NEMO_RL_SETUP.says(
            "_apply_parallelism_config", "Sequence Packing must be enabled to use Context Parallelism", ">=0.6"
        ),
    ),
    applies=lambda v: is_megatron(v) and v.get("cp") != 1,
    good=Example("nemo-rl", _SOUND),
    bad=_changed("sequence_packing.enabled=false"),
)
def context_parallelism_has_packing(v: View) -> Problem | None:
    """Context parallelism is used with sequence packing.

    NeMo-RL cannot split padded rows for Megatron's context parallelism, and asserts sequence packing in every worker.
    """
    if v.cp == 1 or v.sequence_packing:
        return None
    return Problem(
        message="NeMo-RL supports context parallelism only for packed sequences: every worker fails",
        found=f"policy.sequence_packing.enabled false at context_parallel_size {v.cp}",
        wanted="sequence packing",
        facts=("sequence_packing", "cp"),
        fixes=(
            Fix({"sequence_packing": True, "dynamic_batching": False}, "packed sequences"),
            Fix({"cp": 1}, "no context parallelism"),
        ),
    )


@rule(
    "NRL003",
    "error crash init",
    source=(
        NEMO_RL_SETUP.says(
            "_apply_parallelism_config", "Context Parallelism is not supported with linear CE fusion loss", ">=0.6"
        ),
    ),
    applies=lambda v: is_megatron(v) and v.get("cp") != 1 and bool(v.get("fused_linear_logprobs", True)),
    good=Example("nemo-rl", _SOUND),
    bad=_changed("use_fused_linear_logprobs=true"),
)
def context_parallelism_has_a_plain_loss(v: View) -> Problem | None:
    """Context parallelism is used without the fused output layer and loss.

    use_fused_linear_logprobs computes log-probabilities chunk by chunk without the logits; it doesn't account for a
    rank holding only part of the sequence, and NeMo-RL rejects the combination.
    """
    if v.cp == 1 or not v.fused_linear_logprobs:
        return None
    return Problem(
        message="the fused loss doesn't support context parallelism: every worker fails",
        found=f"use_fused_linear_logprobs at context_parallel_size {v.cp}",
        wanted="use_fused_linear_logprobs false",
        facts=("fused_linear_logprobs", "cp"),
        fixes=(Fix({"fused_linear_logprobs": False}, "log-probabilities from the logits"),),
    )


@rule(
    "NRL005",
    "error crash init",
    source=(NEMO_RL_POLICY.says("Policy.__init__", "Dynamic Batching is exclusive of Sequence Packing", ">=0.3"),),
    applies=lambda v: v.dialect == "nemo-rl" and bool(v.dynamic_batching),
    good=_changed("dynamic_batching.enabled=true", "sequence_packing.enabled=false", "context_parallel_size=1"),
    bad=_changed("dynamic_batching.enabled=true"),
)
def batches_are_packed_or_dynamic(v: View) -> Problem | None:
    """Sequence packing and dynamic batching aren't both on.

    Each forms micro-batches by tokens in its own way. A configuration that inherits one and switches on the other has
    both, and NeMo-RL rejects the combination once its workers are up.
    """
    if not v.dynamic_batching or not v.sequence_packing:
        return None
    return Problem(
        message="two ways of forming micro-batches are on: start-up fails",
        found="policy.dynamic_batching.enabled and policy.sequence_packing.enabled",
        wanted="one of them",
        facts=("dynamic_batching", "sequence_packing"),
        fixes=(
            Fix({"dynamic_batching": False}, "packed sequences"),
            Fix({"sequence_packing": False}, "micro-batches of similar lengths"),
        ),
    )


@rule(
    "NRL006",
    "error crash init",
    source=(
        NEMO_RL_POLICY.says(
            "Policy.__init__", "Dynamic batching is only supported for single pipeline parallel stage", ">=0.3"
        ),
    ),
    applies=lambda v: is_megatron(v) and bool(v.dynamic_batching),
    good=_changed("dynamic_batching.enabled=true", "sequence_packing.enabled=false", "context_parallel_size=1"),
    bad=_changed(
        "dynamic_batching.enabled=true",
        "sequence_packing.enabled=false",
        "context_parallel_size=1",
        "pipeline_model_parallel_size=2",
    ),
)
def dynamic_batches_have_one_stage(v: View) -> Problem | None:
    """Dynamic batching is used without pipeline parallelism.

    Its micro-batches have different lengths, which pipeline stages would have to communicate to each other.
    """
    if not v.dynamic_batching or v.pp == 1:
        return None
    return Problem(
        message="micro-batches of dynamic batching cannot pass from stage to stage: start-up fails",
        found=f"policy.dynamic_batching.enabled at pipeline_model_parallel_size {v.pp}",
        wanted="sequence packing, or one stage",
        facts=("dynamic_batching", "pp"),
        fixes=(
            Fix({"dynamic_batching": False, "sequence_packing": True}, "packed sequences"),
            Fix({"dynamic_batching": False}, "micro-batches by number of sequences"),
        ),
    )


@rule(
    "NRL007",
    "warning crash training",
    source=(NEMO_RL_PACKING.says("SequencePacker._validate_sequence_lengths", "exceeds bin capacity", ">=0.4"),),
    applies=_is_packed,
    good=Example("nemo-rl", _SOUND),
    bad=_changed("train_mb_tokens=4096", "max_total_sequence_length=8192"),
)
def packed_rows_hold_the_longest_sequence(v: View) -> Problem | None:
    """A packed row has room for the longest padded sequence.

    The packer puts each sequence, padded to make_sequence_length_divisible_by, into a row of train_mb_tokens (for
    log-probabilities, logprob_mb_tokens). The first one that is longer than a row ends training.
    """
    if None in (v.sequence_multiple, v.max_total_sequence_length):
        return None
    longest = round_up(v.max_total_sequence_length, v.sequence_multiple)
    name = next((name for name in ("train_mb_tokens", "logprob_mb_tokens") if (v.get(name) or longest) < longest), None)
    if name is None:
        return None
    return Problem(
        message="a sequence that is longer than a packed row ends training with 'exceeds bin capacity'",
        found=f"sequences of up to {longest} tokens, {name} {v[name]}",
        wanted=f"{name} of at least {longest}",
        facts=(name, "max_total_sequence_length", "sequence_multiple"),
        fixes=(Fix({name: longest}, f"rows of {longest} tokens"),),
    )


@rule(
    "NRL009",
    "error crash training",
    source=(NEMO_RL_DICT.says("BatchedDataDict.shard_by_batch_size", "batch_size % shards == 0", ">=0.3"),),
    applies=is_megatron,
    good=Example("nemo-rl", _SOUND),
    bad=_changed("train_global_batch_size=3"),
)
def global_batch_divides_over_dp(v: View) -> Problem | None:
    """The global batch size is divisible by the data-parallel size.

    Context parallelism changes the data-parallel size: it is what remains of the policy's GPUs after TP, CP and PP. The
    batch is distributed after the first rollouts, so a wrong size shows up late.
    """
    if v.global_batch_size is None or v.world_size % (v.tp * v.cp * v.pp):
        return None  # TOPO003
    dp = v.world_size // (v.tp * v.cp * v.pp)
    if v.global_batch_size % dp == 0:
        return None
    size = round_up(v.global_batch_size, dp)
    return Problem(
        message="the global batch cannot be split over the data-parallel ranks: the first training step fails",
        found=f"policy.train_global_batch_size {v.global_batch_size} at DP {dp}",
        wanted=f"a multiple of {dp}",
        facts=("global_batch_size", "cp", "world_size"),
        fixes=(Fix({"global_batch_size": size}, f"{size} sequences per step"),),
    )
