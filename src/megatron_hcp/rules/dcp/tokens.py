"""Tokens per rank under dynamic CP: how many a rank holds, and whether the longest sequence fits."""

from __future__ import annotations

from megatron_hcp.core.shards import round_up
from megatron_hcp.rules.dcp.launches import HYBRID, ON_MAIN, VERL, VERL_0_9, hybrid
from megatron_hcp.rules.dcp.view import (
    is_dev,
    is_dynamic,
    is_hybrid,
    is_verl,
    largest_power,
    max_sequence,
    num_ranks,
    tokens_per_rank,
)
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    GPT_DATASET,
    HYBRID_CP_SCHEDULE,
    SFT_DATASET,
    VERL_DYNAMIC_CP_SCHEDULER,
    VERL_ENGINE,
    VERL_ENGINE_CONFIG,
    VERL_MEGATRON_UTILS,
)
from megatron_hcp.rules.view import Unknown, View

_UNIT = 1024


def _enough(v: View, ranks: int) -> int:
    """A round number of tokens per rank at which the longest sequence fits."""
    return round_up(-(-max_sequence(v) // ranks), _UNIT)


def _budget_fixes(v: View) -> list[Fix]:
    try:
        tokens = _enough(v, largest_power(num_ranks(v)))
    except Unknown:
        return []
    return [Fix({"max_seqlen_per_dp_cp_rank": tokens}, f"{tokens} tokens per rank: the longest sequence fits")]


@rule(
    "DCP005",
    "error crash training",
    source=(
        HYBRID_CP_SCHEDULE.says("BalancedCPScheduler.gpus_needed", "seq_len / self.max_seq_len_per_rank", ">=0.16"),
        VERL_ENGINE_CONFIG.says(
            "McoreEngineConfig.__post_init__", "max_seqlen_per_dp_cp_rank must be a positive integer", ">=0.9"
        ),
        VERL_ENGINE.says(
            "MegatronEngine._init_device_mesh", "max_seqlen_per_dp_cp_rank is required when", ">=0.8,<0.9"
        ),
    ),
    applies=is_dynamic,
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", hybrid(max_seqlen_per_dp_cp_rank=None), ON_MAIN),
)
def tokens_per_rank_are_set(v: View) -> Problem | None:
    """Dynamic CP states how many tokens a rank holds.

    The scheduler divides each length by max_seqlen_per_dp_cp_rank to find the smallest group. Its default is None.
    Megatron-LM and megatron-core don't check it before the first batch; verl rejects it at start-up.
    """
    if tokens_per_rank(v) is not None:
        return None
    refused = v.dialect == "verl"
    return Problem(
        message="verl fails at start-up"
        if refused
        else "nothing checks it until the first batch, which fails with a TypeError or a division by zero",
        found=f"dynamic CP with max_seqlen_per_dp_cp_rank {v.max_seqlen_per_dp_cp_rank}",
        wanted="the number of tokens that a rank can hold, a positive integer",
        facts=("max_seqlen_per_dp_cp_rank",),
        fixes=tuple(_budget_fixes(v)),
        stage="config" if refused else "training",
    )


@rule(
    "DCP006",
    "error crash training",
    source=(
        HYBRID_CP_SCHEDULE.says(
            "BalancedCPScheduler.next_hdp_group", "There should be at least one group existing", ">=0.16"
        ),
    ),
    applies=lambda v: is_hybrid(v) or is_dev(v),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", hybrid(max_seqlen_per_dp_cp_rank=2048), ON_MAIN),
)
def longest_sequence_fits_a_group(v: View) -> Problem | None:
    """The longest sequence fits on the largest power-of-two group of ranks.

    A sequence needs s / max_seqlen_per_dp_cp_rank ranks, rounded up to a power of two. If there are fewer, the
    scheduler on main fails with an assertion about a missing group, not about the sequence length, and only when the
    batch with that sequence is planned. The dev branch compares the numbers at start-up.
    """
    tokens = tokens_per_rank(v)
    if tokens is None:
        return None
    longest, ranks = max_sequence(v), num_ranks(v)
    if longest <= tokens * largest_power(ranks):
        return None
    fixes = _budget_fixes(v)
    fixes.append(Fix({"seq_length": tokens * largest_power(ranks)}, "shorter sequences"))
    return Problem(
        message="the run fails in mid-training at the first sequence that is too long, with an error about groups "
        "that don't exist"
        if is_hybrid(v)
        else "the launcher fails: a row has no room for the sequence",
        found=f"sequences up to {longest} tokens, and room for {tokens} x {largest_power(ranks)} on {ranks} ranks",
        wanted=f"max_seqlen_per_dp_cp_rank of at least {-(-longest // largest_power(ranks))}",
        facts=("max_seqlen_per_dp_cp_rank", "seq_length", "world_size"),
        fixes=tuple(fixes),
        stage="training" if is_hybrid(v) else "config",
    )


@rule(
    "DCP008",
    "error crash training",
    source=(
        SFT_DATASET.says(
            "SFTDataset.__getitem__",
            "pad_granularity = self.config.context_parallel_size * 2",
            ">=0.16",
            branches=("main",),
        ),
        GPT_DATASET.says(
            "GPTDatasetConfig",
            "each sample should be divisible by the data parallel size * context parallel size * 2",
            ">=0.16",
        ),
    ),
    applies=lambda v: v.dialect == "mlm" and is_hybrid(v) and bool(v.get("sft")),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", hybrid(context_parallel_size=4), ON_MAIN),
)
def padding_fits_the_widest_group(v: View) -> Problem | None:
    """Conversations are padded for the widest group the scheduler may choose.

    A group of C ranks cuts each conversation into 2 C chunks (times TP with sequence parallelism). C can be any size up
    to DP x CP, even for a short conversation, because groups are widened to use idle ranks. Megatron-LM's --sft pads
    only for the static CP size.
    """
    split = v.tp if v.get("sequence_parallel") else 1
    ranks = num_ranks(v)
    padded, needed = 2 * v.cp, 2 * ranks * split
    if padded % needed == 0:
        return None
    fixes = [Fix({"cp": ranks}, "rows padded for the widest group")] if split == 1 else []
    return Problem(
        message="training fails or loses tokens when the scheduler spreads a conversation over more ranks than its "
        "padding allows: it also widens groups to use idle ranks",
        found=f"--sft, which pads to multiples of 2 x {v.cp} = {padded}, and groups of up to {ranks} ranks",
        wanted=f"multiples of {needed}" + (": a dataset that pads this way itself" if split > 1 else ""),
        facts=("cp", "world_size"),
        fixes=tuple(fixes),
    )


@rule(
    "DCP022",
    "error crash training",
    source=(
        VERL_DYNAMIC_CP_SCHEDULER.says("DynamicCPScheduler.schedule", "required_ranks > self.total_ranks", ">=0.9"),
        VERL_MEGATRON_UTILS.says("dynamic_cp_split_batch", "try to increase max_seqlen_per_dp_cp_rank", ">=0.8,<0.9"),
    ),
    applies=is_verl,
    good=Example("verl", f"{VERL} data.max_prompt_length=1024 data.max_response_length=31744", VERL_0_9),
    bad=Example("verl", f"{VERL} data.max_prompt_length=2048 data.max_response_length=32768", VERL_0_9),
)
def longest_rollout_fits_on_all_ranks(v: View) -> Problem | None:
    """The longest prompt and response fit on all ranks together.

    verl compares the longest sequence with DP x CP x max_seqlen_per_dp_cp_rank when a batch arrives. The first long
    rollout may come late, and only then does the run fail.
    """
    tokens = tokens_per_rank(v)
    if tokens is None:
        return None
    longest, ranks = max_sequence(v), num_ranks(v)
    if longest <= tokens * ranks:
        return None
    return Problem(
        message="the run fails at the first rollout that is too long, possibly hours in",
        found=f"prompt and response up to {longest} tokens, and room for {tokens} x {ranks} = {tokens * ranks}",
        wanted=f"max_seqlen_per_dp_cp_rank of at least {-(-longest // ranks)}, or a shorter response",
        facts=("max_seqlen_per_dp_cp_rank", "max_response_length", "max_prompt_length"),
        fixes=tuple(_budget_fixes(v)),
    )
