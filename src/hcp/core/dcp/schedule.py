"""Plans dynamic context parallelism: from the lengths of sequences to micro-batches of groups."""

from __future__ import annotations

from collections.abc import Sequence

from hcp.core.dcp.cost import DEFAULT_COST, Cost
from hcp.core.dcp.groups import usable_sizes
from hcp.core.dcp.lengths import check_lengths, check_positive
from hcp.core.dcp.plan import Group, MicroBatch, Plan, measure, padded_length
from hcp.core.dcp.search import cheapest_plan
from hcp.core.dcp.split import split_pr5869
from hcp.core.dcp.workload import Workload, workload_of
from hcp.core.errors import HcpError

POLICIES = ("balanced", "pr5869")


def plan_micro_batches(
    lengths: Sequence[int],
    world_size: int,
    max_seqlen_per_rank: int,
    *,
    policy: str = "balanced",
    cost: Cost = DEFAULT_COST,
    tp: int = 1,
    sequence_parallel: bool = True,
    groups: str = "pow2",
) -> Plan:
    """Assigns every sequence to one micro-batch and one group of ranks; the same arguments always give the same plan.

    Args:
        lengths: tokens of each sequence, unpadded, each >= 1 (policy pr5869: >= 0).
        world_size: W, the ranks of DPxCP that one tensor and pipeline slice sees.
        max_seqlen_per_rank: M, the most padded tokens that a rank holds in a micro-batch.
        policy: "balanced", ours: in each micro-batch the groups cover all ranks and padded tokens stay within M. Where
            a group could have the next smaller size without breaking M or making its micro-batch longer, the ranks that
            this saves would idle: they would not do to divide any group of several sequences.
            "pr5869": all sequences in one micro-batch, split as verl pull request #5869 does.
        cost: what a sequence costs; its `comm` moves the plan between few ranks per sequence and even load.
        tp: tensor-parallel size. With `sequence_parallel`, sequences are padded to multiples of tp * 2 * C, else 2 * C.
        groups: which process groups exist: "main", "dev" or "pow2" (see `usable_sizes`).

    Raises HcpError for arguments of the wrong kind, and for lengths that fit on no group, naming the sequence and the
    smallest max_seqlen or world_size that would do.

    >>> plan = plan_micro_batches([3000, 900, 900], 4, 1024)
    >>> [(list(group.ranks), group.samples) for batch in plan.micro_batches for group in batch.groups]
    [([0, 1, 2, 3], (0,)), ([0, 1], (1,)), ([2, 3], (2,))]
    """
    lengths = tuple(lengths)
    if policy not in POLICIES:
        raise HcpError(f"policy: found {policy!r}, wanted one of {', '.join(POLICIES)}")
    check_positive("max_seqlen", max_seqlen_per_rank)
    check_positive("tp", tp)
    sizes = usable_sizes(world_size, groups)
    align = tp if sequence_parallel else 1
    if policy == "pr5869":
        batches: tuple[MicroBatch, ...] = (_one_micro_batch(lengths, world_size, max_seqlen_per_rank),)
    else:
        check_lengths(lengths)
        workload = workload_of(list(lengths), world_size, max_seqlen_per_rank, sizes, cost, align)
        _check_fit(workload, max_seqlen_per_rank, groups, align)
        batches = _as_planned(workload)
    metrics = measure(batches, lengths, world_size, max_seqlen_per_rank, sizes, cost, align)
    return Plan(policy, world_size, max_seqlen_per_rank, lengths, batches, metrics)


def _one_micro_batch(lengths: tuple[int, ...], world_size: int, max_seqlen: int) -> MicroBatch:
    split = split_pr5869(lengths, world_size, max_seqlen)
    size = split.local_cp_size
    return MicroBatch(tuple(Group(size * k, size, tuple(part)) for k, part in enumerate(split.samples)))


def _as_planned(workload: Workload) -> tuple[MicroBatch, ...]:
    """The cheapest plan on ranks: in each micro-batch the widest groups first, so that each is aligned to its size."""
    plan = cheapest_plan(workload)
    plan.sort(key=lambda batch: max(pack.height for pack in batch), reverse=True)
    result = []
    for batch in plan:
        start, groups = 0, []
        for pack in sorted(batch, key=lambda pack: (-pack.size, -pack.height, min(pack.items))):
            width = workload.sizes[pack.size]
            groups.append(Group(start, width, tuple(sorted([workload.ids[i] for i in pack.items]))))
            start += width
        assert start == workload.world_size, (start, workload.world_size)
        result.append(MicroBatch(tuple(groups)))
    return tuple(result)


def _check_fit(workload: Workload, max_seqlen: int, target: str, align: int) -> None:
    """Raises HcpError, with what would do, if the longest sequence fits nowhere, or M is too small to share at all."""
    world_size = workload.world_size
    longest = workload.length[0]
    if world_size > 1 and max_seqlen < 2 * align and longest <= workload.longest[0]:
        raise HcpError(
            f"max_seqlen: found {max_seqlen}, but on several ranks each holds a multiple of {2 * align} padded tokens; "
            f"raise it to {2 * align}"
        )
    if workload.need[0] < len(workload.sizes):
        return
    least = max(-(-padded_length(longest, world_size, align) // world_size), 2 * align if world_size > 1 else 1)
    advice = f"raise max_seqlen to {least}"
    if max_seqlen >= 2 * align:
        ranks = -(-longest // (max_seqlen // (2 * align) * 2 * align))
        ranks += ranks % 2 if target != "pow2" else 0
        advice += f" or world_size to {ranks}"
    raise HcpError(
        f"sequence {workload.ids[0]} has {longest} tokens, more than fit on {world_size} ranks of at most "
        f"{max_seqlen} padded tokens each; {advice}"
    )
