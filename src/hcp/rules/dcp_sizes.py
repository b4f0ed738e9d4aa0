"""Dynamic context parallelism: whether the longest sequence fits, and whether every group size exists."""

from __future__ import annotations

from hcp.rules.cp_view import round_up
from hcp.rules.dcp_view import (
    group_sizes,
    is_dev,
    is_dynamic,
    is_hybrid,
    is_newer_than_read,
    is_verl,
    largest_power,
    max_sequence,
    num_ranks,
    tokens_per_rank,
)
from hcp.rules.rule import Example, Fix, Problem, Unknown, View, rule
from hcp.rules.upstream import (
    DATA_SCHEDULE,
    GPT_DATASET,
    HYBRID_CP_SCHEDULE,
    PARALLEL_STATE,
    SFT_DATASET,
    VERL_DYNAMIC_CP_SCHEDULER,
    VERL_ENGINE,
    VERL_ENGINE_CONFIG,
    VERL_MEGATRON_UTILS,
)

_UNIT = 1024
_MOST_RANKS = 2**20


def _enough(v: View, ranks: int) -> int:
    """Tokens per rank with which the longest sequence fits, a round number."""
    return round_up(-(-max_sequence(v) // ranks), _UNIT)


def _budget_fixes(v: View) -> list[Fix]:
    try:
        tokens = _enough(v, largest_power(num_ranks(v)))
    except Unknown:
        return []
    return [Fix({"max_seqlen_per_dp_cp_rank": tokens}, f"{tokens} tokens a rank: the longest sequence fits")]


def _wanted_ranks(v: View, ranks: int) -> list[Fix]:
    """Node counts that make DP x CP a power of two."""
    width = v.world_size // ranks
    lower = largest_power(ranks)
    fixes = []
    for target in (lower, 2 * lower):
        if v.known("nodes", "gpus_per_node") and (target * width) % v.gpus_per_node == 0:
            nodes = target * width // v.gpus_per_node
            fixes.append(Fix({"nodes": nodes}, f"{target} ranks share a batch"))
    return fixes


def _not_a_power(v: View) -> Problem | None:
    ranks = num_ranks(v)
    at_start = ranks % 2 == 1  # the one case that megatron-core, which builds the groups, and verl refuse
    if (ranks == largest_power(ranks) and ranks > 1) or ranks > _MOST_RANKS:
        return None
    sizes = () if at_start else group_sizes(ranks)
    missing = [size for size in (2**k for k in range(1, ranks.bit_length())) if size not in sizes]
    broken = [size for size in sizes if ranks % size]
    if at_start:
        message = "start-up stops: dynamic groups need an even number of ranks"
    elif missing:
        message = f"training stops as soon as the scheduler asks for a group of {missing[0]}: none is built" + (
            f"; the last ranks hold a smaller group under the size {broken[0]}" if broken else ""
        )
    else:
        message = f"the last ranks hold a smaller group under the size {broken[0]}, and wait for ranks outside it"
    return Problem(
        message=message,
        found=f"DP x CP = {ranks}",
        wanted=f"a power of two, such as {largest_power(ranks) if ranks > 1 else 2} or {2 * largest_power(ranks)}",
        facts=("world_size", "cp", "tp", "pp"),
        fixes=tuple(_wanted_ranks(v, ranks)),
        stage="init" if at_start else "training",
    )


_HYBRID = (
    "--hybrid-context-parallel --seq-length 32768 --sft --no-create-attention-mask-in-dataloader "
    "--calculate-per-token-loss --micro-batch-size 1 --eval-iters 0 "
)
_ON = "world_size=8 mcore=0.17.0 te=2.14"
_ACTOR = "actor_rollout_ref.actor.megatron."
_VERL = f"{_ACTOR}dynamic_context_parallel=True {_ACTOR}max_seqlen_per_dp_cp_rank=4096"
_DEV = "verl=0.9.1 mcore=0.19.0 mcore_branch=dev"


@rule(
    "DCP005",
    severity="error",
    effect="crash",
    stage="training",
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
    good=Example("mlm", _HYBRID + "--max-seqlen-per-dp-cp-rank 4096 --context-parallel-size 8", _ON),
    bad=Example("mlm", _HYBRID + "--context-parallel-size 8", _ON),
)
def tokens_per_rank_are_stated(v: View) -> Problem | None:
    """Dynamic CP says how many tokens a rank holds.

    The scheduler divides each length by max_seqlen_per_dp_cp_rank to find the smallest group. Its default is None.
    Megatron-LM and megatron-core do not look at it before the first batch; verl refuses it at start-up.
    """
    if tokens_per_rank(v) is not None:
        return None
    refused = v.kind == "verl"
    return Problem(
        message="verl stops at start-up"
        if refused
        else "nothing looks at it until the first batch, which stops with a TypeError or a division by zero",
        found=f"dynamic CP with max_seqlen_per_dp_cp_rank {v.max_seqlen_per_dp_cp_rank}",
        wanted="the tokens that a rank can hold, a positive whole number",
        facts=("max_seqlen_per_dp_cp_rank",),
        fixes=tuple(_budget_fixes(v)),
        stage="config" if refused else "training",
    )


@rule(
    "DCP006",
    severity="error",
    effect="crash",
    stage="training",
    source=(
        HYBRID_CP_SCHEDULE.says(
            "BalancedCPScheduler.next_hdp_group", "There should be at least one group existing", ">=0.16"
        ),
    ),
    applies=lambda v: is_hybrid(v) or is_dev(v),
    good=Example("mlm", _HYBRID + "--max-seqlen-per-dp-cp-rank 4096 --context-parallel-size 8", _ON),
    bad=Example("mlm", _HYBRID + "--max-seqlen-per-dp-cp-rank 2048 --context-parallel-size 8", _ON),
)
def longest_sequence_fits_a_power_of_two(v: View) -> Problem | None:
    """The longest sequence fits on the widest power of two of ranks.

    A sequence needs s / max_seqlen_per_dp_cp_rank ranks, rounded up to a power of two. Where that is more than
    there are, the scheduler of main asserts that there should be a group, not that the sequence is too long, when
    the batch that holds it is planned. The dev branch compares the numbers at start-up.
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
        message="the run stops at the first sequence that is too long, in the middle of training, and the error speaks "
        "of groups that do not exist"
        if is_hybrid(v)
        else "the launcher stops: a row would not hold the sequence",
        found=f"sequences up to {longest} tokens, and room for {tokens} x {largest_power(ranks)} on {ranks} ranks",
        wanted=f"max_seqlen_per_dp_cp_rank of at least {-(-longest // largest_power(ranks))}",
        facts=("max_seqlen_per_dp_cp_rank", "seq_length", "world_size"),
        fixes=tuple(fixes),
        stage="training" if is_hybrid(v) else "config",
    )


@rule(
    "DCP007",
    severity="error",
    effect="crash",
    stage="training",
    source=(
        PARALLEL_STATE.says(
            "initialize_model_parallel", "Hybrid context parallel requires an even number of ranks", ">=0.16"
        ),
        PARALLEL_STATE.says(
            "create_hybrid_dp_cp_groups", "group_sizes = [2**i for i in range(int(log2(len(ranks))))][1:]", ">=0.16"
        ),
    ),
    applies=lambda v: is_hybrid(v) or is_dev(v),
    good=Example("mlm", _HYBRID + "--max-seqlen-per-dp-cp-rank 4096 --context-parallel-size 8", _ON),
    bad=Example(
        "mlm",
        _HYBRID + "--max-seqlen-per-dp-cp-rank 8192 --context-parallel-size 12 --seq-length 49152",
        "world_size=12 mcore=0.17.0 te=2.14",
    ),
)
def ranks_are_a_power_of_two(v: View) -> Problem | None:
    """DP x CP is a power of two.

    megatron-core builds groups of 2, 4, ... below the largest power of two in DP x CP, and one of all ranks. The
    scheduler asks for any power of two. On 6 ranks there is no group of 4, on 12 none of 8; on 10 the last two
    ranks keep a group of two under the size 4. Only an odd number is refused.
    """
    return _not_a_power(v)


@rule(
    "DCP008",
    severity="error",
    effect="crash",
    stage="training",
    source=(
        SFT_DATASET.says("SFTDataset.__getitem__", "pad_granularity = self.config.context_parallel_size * 2"),
        GPT_DATASET.says(
            "GPTDatasetConfig",
            "each sample should be divisible by the data parallel size * context parallel size * 2",
            ">=0.16",
        ),
    ),
    applies=lambda v: v.kind == "mlm" and is_hybrid(v) and bool(v.get("sft")),
    good=Example("mlm", _HYBRID + "--max-seqlen-per-dp-cp-rank 4096 --context-parallel-size 8", _ON),
    bad=Example("mlm", _HYBRID + "--max-seqlen-per-dp-cp-rank 4096 --context-parallel-size 4", _ON),
)
def padding_fits_the_widest_group(v: View) -> Problem | None:
    """Conversations are padded for the widest group that the scheduler may choose.

    A group of C ranks cuts each conversation into 2 C chunks (times TP with sequence parallelism). C can be any
    size up to DP x CP, also for a short conversation, because idle ranks are filled by widening groups.
    Megatron-LM's --sft pads for the static CP size alone.
    """
    split = v.tp if v.get("sequence_parallel") and v.tp > 1 else 1
    ranks = num_ranks(v)
    padded, needed = 2 * v.cp, 2 * ranks * split
    if padded % needed == 0:
        return None
    fixes = [Fix({"cp": ranks}, "rows padded for the widest group")] if split == 1 else []
    return Problem(
        message="training stops, or loses tokens, where the scheduler spreads a conversation over more ranks than its "
        "padding allows: it also widens groups to fill idle ranks",
        found=f"--sft, which pads to multiples of 2 x {v.cp} = {padded}, and groups of up to {ranks} ranks",
        wanted=f"multiples of {needed}" + (": a data set that pads so itself" if split > 1 else ""),
        facts=("cp", "world_size"),
        fixes=tuple(fixes),
    )


@rule(
    "DCP019",
    severity="error",
    effect="silent",
    stage="never",
    source=(DATA_SCHEDULE.says("HybridCPDataLoaderWrapper._gid_to_src_rank", "// self.tp_group.size()", ">=0.16"),),
    applies=lambda v: is_hybrid(v) and not is_newer_than_read(v),
    good=Example("mlm", _HYBRID + "--max-seqlen-per-dp-cp-rank 4096 --context-parallel-size 8", _ON),
    bad=Example(
        "bridge-provider",
        "model.hybrid_context_parallel=true model.max_seqlen_per_dp_cp_rank=4096 "
        "model.calculate_per_token_loss=true model.tensor_model_parallel_size=2",
        "rank_order=cp-tp-dp-ep-pp mcore=0.16.1",
    ),
)
def tp_is_the_fastest_axis(v: View) -> Problem | None:
    """Hybrid CP keeps tensor parallelism as the fastest axis of ranks.

    The wrapper around the data loader computes which DP x CP rank a global rank is as rank // TP size. That is
    right only where TP ranks are neighbours.
    """
    order = str(v.rank_order)
    if v.tp == 1 or order.startswith("tp"):
        return None
    return Problem(
        message="samples go to the wrong ranks without a word: the data loader takes ranks // TP for the DP x CP rank",
        found=f"rank order {order} at tensor_model_parallel_size {v.tp}",
        wanted="an order in which tp is the fastest axis",
        facts=("rank_order", "tp"),
    )


@rule(
    "DCP021",
    severity="error",
    effect="crash",
    stage="training",
    source=(VERL_ENGINE.says("_validate_dcp_world_size", "dpcp_size < 2 or dpcp_size % 2 != 0", ">=0.9"),),
    applies=is_verl,
    good=Example("verl", _VERL + " trainer.nnodes=2 trainer.n_gpus_per_node=8", _DEV),
    bad=Example("verl", _VERL + " trainer.nnodes=3 trainer.n_gpus_per_node=8", _DEV),
)
def verl_ranks_are_a_power_of_two(v: View) -> Problem | None:
    """verl's dynamic CP has a power of two of DP x CP ranks.

    verl and its manual accept every even number. Of realistic batches on 6 or 12 ranks nearly all end in a
    KeyError, an IndexError or an assertion, because the scheduler chooses powers of two that have no group.
    """
    return _not_a_power(v)


@rule(
    "DCP022",
    severity="error",
    effect="crash",
    stage="training",
    source=(
        VERL_DYNAMIC_CP_SCHEDULER.says("DynamicCPScheduler.schedule", "required_ranks > self.total_ranks", ">=0.9"),
        VERL_MEGATRON_UTILS.says("dynamic_cp_split_batch", "try to increase max_seqlen_per_dp_cp_rank", ">=0.8,<0.9"),
    ),
    applies=is_verl,
    good=Example("verl", _VERL + " data.max_prompt_length=1024 data.max_response_length=31744", _DEV),
    bad=Example("verl", _VERL + " data.max_prompt_length=2048 data.max_response_length=32768", _DEV),
)
def verl_sequence_fits_all_ranks(v: View) -> Problem | None:
    """The longest prompt and response fit on all ranks together.

    verl compares the longest sequence with DP x CP x max_seqlen_per_dp_cp_rank when a batch arrives. A long rollout
    can arrive late, and only then does the run stop.
    """
    tokens = tokens_per_rank(v)
    if tokens is None:
        return None
    longest, ranks = max_sequence(v), num_ranks(v)
    if longest <= tokens * ranks:
        return None
    return Problem(
        message="the run stops at the first rollout that is too long, hours after the start",
        found=f"prompt and response up to {longest} tokens, and room for {tokens} x {ranks} = {tokens * ranks}",
        wanted=f"max_seqlen_per_dp_cp_rank of at least {-(-longest // ranks)}, or a shorter response",
        facts=("max_seqlen_per_dp_cp_rank", "max_response_length", "max_prompt_length"),
        fixes=tuple(_budget_fixes(v)),
    )


RULES = (
    tokens_per_rank_are_stated,
    longest_sequence_fits_a_power_of_two,
    ranks_are_a_power_of_two,
    padding_fits_the_widest_group,
    tp_is_the_fastest_axis,
    verl_ranks_are_a_power_of_two,
    verl_sequence_fits_all_ranks,
)
