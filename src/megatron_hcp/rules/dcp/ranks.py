"""The ranks that share a batch under dynamic CP: how many there are, and in which order."""

from __future__ import annotations

from megatron_hcp.rules.dcp.launches import HYBRID, ON_MAIN, VERL, VERL_0_9, hybrid
from megatron_hcp.rules.dcp.view import (
    group_sizes,
    is_dev,
    is_hybrid,
    is_newer_than_read,
    is_verl,
    largest_power,
    num_ranks,
)
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import DATA_SCHEDULE, PARALLEL_STATE, VERL_ENGINE
from megatron_hcp.rules.view import View

_MOST_RANKS = 2**20


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
    at_start = ranks % 2 == 1  # the only case that megatron-core, which builds the groups, and verl reject
    if (ranks == largest_power(ranks) and ranks > 1) or ranks > _MOST_RANKS:
        return None
    if at_start:
        message = "start-up fails: dynamic groups need an even number of ranks"
    else:
        widest = largest_power(ranks)  # the one power of two without a group, see `group_sizes`
        broken = [size for size in group_sizes(ranks) if ranks % size]
        message = f"training fails as soon as the scheduler requests a group of {widest}: none is built" + (
            f"; on the last ranks the group registered as size {broken[0]} is smaller" if broken else ""
        )
    return Problem(
        message=message,
        found=f"DP x CP = {ranks}",
        wanted=f"a power of two, such as {largest_power(ranks) if ranks > 1 else 2} or {2 * largest_power(ranks)}",
        facts=("world_size", "cp", "tp", "pp"),
        fixes=tuple(_wanted_ranks(v, ranks)),
        stage="init" if at_start else "training",
    )


@rule(
    "DCP007",
    "error crash training",
    source=(
        PARALLEL_STATE.says(
            "initialize_model_parallel",
            "Hybrid context parallel requires an even number of ranks",
            ">=0.16",
            branches=("main",),
        ),
        PARALLEL_STATE.says(
            "initialize_model_parallel",
            "Dynamic context parallel requires an even number of ranks",
            ">=0.19",
            where="checkout",
            branches=("dev",),
        ),
        PARALLEL_STATE.says(
            "create_hybrid_dp_cp_groups",
            "group_sizes = [2**i for i in range(int(log2(len(ranks))))][1:]",
            ">=0.16",
            branches=("main",),
        ),
    ),
    applies=lambda v: (is_hybrid(v) or is_dev(v)) and not is_newer_than_read(v),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example(
        "mlm",
        hybrid(max_seqlen_per_dp_cp_rank=8192, context_parallel_size=12, seq_length=49152),
        "world_size=12 mcore=0.17.0 te=2.14",
    ),
)
def dp_cp_ranks_are_a_power_of_two(v: View) -> Problem | None:
    """DP x CP is a power of two.

    megatron-core builds groups of 2, 4, ... below the largest power of two in DP x CP, and one of all ranks. The
    scheduler may request any power of two. On 6 ranks there is no group of 4, on 12 none of 8; on 10 the last two ranks
    have a group of two registered as size 4. Only an odd number of ranks is rejected. Megatron-LM#6801, open in August
    2026, would build groups of any size.
    """
    return _not_a_power(v)


@rule(
    "DCP019",
    "error silent never",
    source=(DATA_SCHEDULE.says("HybridCPDataLoaderWrapper._gid_to_src_rank", "// self.tp_group.size()", ">=0.16"),),
    applies=lambda v: is_hybrid(v) and not is_newer_than_read(v),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example(
        "bridge-provider",
        "model.hybrid_context_parallel=true model.max_seqlen_per_dp_cp_rank=4096 "
        "model.calculate_per_token_loss=true model.tensor_model_parallel_size=2",
        "rank_order=cp-tp-dp-ep-pp mcore=0.16.1",
    ),
)
def tp_is_the_fastest_axis(v: View) -> Problem | None:
    """With hybrid CP, tensor parallelism is the fastest-varying rank axis.

    The wrapper around the data loader computes a rank's DP x CP index as rank // TP size. That is correct only if TP
    ranks are adjacent.
    """
    order = str(v.rank_order)
    if v.tp == 1 or order.startswith("tp"):
        return None
    return Problem(
        message="samples silently go to the wrong ranks: the data loader uses rank // TP as the DP x CP rank",
        found=f"rank order {order} at tensor_model_parallel_size {v.tp}",
        wanted="an order in which tp varies fastest",
        facts=("rank_order", "tp"),
    )


@rule(
    "DCP021",
    "error crash training",
    source=(VERL_ENGINE.says("_validate_dcp_world_size", "dpcp_size < 2 or dpcp_size % 2 != 0", ">=0.9"),),
    applies=lambda v: is_verl(v) and not is_newer_than_read(v),
    good=Example("verl", f"{VERL} trainer.nnodes=2 trainer.n_gpus_per_node=8", VERL_0_9),
    bad=Example("verl", f"{VERL} trainer.nnodes=3 trainer.n_gpus_per_node=8", VERL_0_9),
)
def verl_ranks_are_a_power_of_two(v: View) -> Problem | None:
    """Under verl's dynamic CP, DP x CP is a power of two.

    verl and its manual accept any even number. On 6 or 12 ranks nearly all realistic batches end in a KeyError, an
    IndexError or an assertion, because the scheduler chooses powers of two for which there is no group. The groups are
    megatron-core's: see DCP007.
    """
    return _not_a_power(v)
