"""verl's dynamic CP: how micro-batches are formed, and how verl 0.8 splits them over ranks."""

from __future__ import annotations

from typing import Any

from megatron_hcp.rules.dcp.launches import VERL, VERL_0_8, VERL_0_9
from megatron_hcp.rules.dcp.view import is_verl, num_ranks
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import VERL_ENGINE, VERL_MEGATRON_UTILS
from megatron_hcp.rules.view import View

_IGNORED = ("ppo_max_token_len_per_gpu", "micro_batch_size")


def _splits_evenly(num_sequences: int, ranks: int) -> bool:
    """Whether verl 0.8's split of a micro-batch leaves no rank empty, whatever power of two of ranks it chooses."""
    sizes = [2**k for k in range(ranks.bit_length())]
    return all((parts - 1) * -(-num_sequences // parts) < num_sequences for parts in sizes)


@rule(
    "DCP023",
    "info note never",
    source=(
        VERL_ENGINE.says(
            "MegatronEngine.forward_backward_batch",
            "max_seqlen_per_dp_cp_rank=self.engine_config.max_seqlen_per_dp_cp_rank",
            ">=0.9",
        ),
    ),
    applies=is_verl,
    good=Example("verl", VERL, VERL_0_9),
    bad=Example("verl", f"{VERL} actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768", VERL_0_9),
)
def no_ignored_micro_batch_sizes(v: View) -> Problem | None:
    """Under dynamic CP, verl's other micro-batch sizes are not relied on.

    From 0.9 on the engine skips the code that forms micro-batches and takes them from megatron-core's scheduler, which
    uses only max_seqlen_per_dp_cp_rank. Start-up still requires use_dynamic_bsz=True or a micro-batch size (VERL001),
    whatever its value.
    """
    if not v.at_least("verl", "0.9"):
        return None
    written = [
        name
        for name in _IGNORED
        if (fact := v.fact(name)) is not None and fact.origin == "launch" and fact.value not in (None, 1)
    ]
    if not written:
        return None
    return Problem(
        message="start-up requires them, but training ignores them: only max_seqlen_per_dp_cp_rank limits a "
        "micro-batch",
        found=f"dynamic_context_parallel with {', '.join(written)}",
        wanted="use_dynamic_bsz=True, and max_seqlen_per_dp_cp_rank set to the tokens that a rank can hold",
        facts=tuple(written),
    )


@rule(
    "DCP025",
    "error hang training",
    source=(
        VERL_MEGATRON_UTILS.says(
            "dynamic_cp_split_batch",
            "num_seq_per_local_cp = math.ceil(len(seq_len_effective) / local_dp_size)",
            ">=0.8,<0.9",
        ),
    ),
    applies=is_verl,
    good=Example("verl", VERL, VERL_0_9),
    bad=Example(
        "verl", "engine=megatron engine.dynamic_context_parallel=True engine.max_seqlen_per_dp_cp_rank=4096", VERL_0_8
    ),
)
def verl_can_split_its_micro_batches(v: View) -> Problem | None:
    """Under verl 0.8, the ranks can share the sequences of every micro-batch.

    verl 0.8 returns a micro-batch with fewer sequences than ranks unsplit and without a CP size, and cuts others into
    slices of ceil(n / groups): with 16 groups, two thirds of all counts leave the last groups empty. Both are fixed in
    0.9.
    """
    if v.at_least("verl", "0.9") or not v.at_least("verl", "0.8"):
        return None
    num_sequences: Any = v.get("micro_batch_size") if v.get("use_dynamic_bsz") is False else None
    ranks: Any = num_ranks(v) if v.known("world_size", "dp", "cp") else None
    known = num_sequences is not None and ranks is not None
    if known and _splits_evenly(num_sequences, ranks):
        return None
    unsplit = known and num_sequences < ranks
    if unsplit:
        message = "context parallelism is off: with fewer sequences than ranks every rank runs all of them, unsplit"
    elif known:
        message = "training hangs: some ranks get no sequence of a micro-batch and fail, the others wait"
    else:
        message = (
            "micro-batches with fewer sequences than ranks run without context parallelism, and many counts leave "
            "ranks without a sequence: those fail, the others hang"
        )
    return Problem(
        message=message,
        found=f"verl {v.verl}, which splits a micro-batch of "
        + (f"{num_sequences} sequences over {ranks} ranks by count" if known else "any size by count"),
        wanted="verl 0.9 or newer, or a fixed micro-batch that is a multiple of DP x CP",
        facts=("dynamic_context_parallel", "verl", "micro_batch_size"),
        fixes=(Fix({"use_dynamic_bsz": False, "micro_batch_size": ranks}, "one sequence or more per rank"),)
        if ranks is not None
        else (),
        severity=None if known else "warning",
        effect="silent" if unsplit else "hang",
        stage="never" if unsplit else "training",
    )
