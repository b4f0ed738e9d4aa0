"""Plans dynamic context parallelism: from the lengths of sequences to micro-batches of groups."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.dcp.cost import DEFAULT_COST, Cost
from megatron_hcp.dcp.lengths import MOST_RANKS, check_lengths, check_positive
from megatron_hcp.dcp.plan import Group, MicroBatch, Plan, measure
from megatron_hcp.dcp.search import cheap_plans
from megatron_hcp.dcp.setup import Memory, Setup, check_setup
from megatron_hcp.dcp.workload import Packs, Workload, workload_of
from megatron_hcp.ground.errors import HcpError

OURS = "balanced"
"""The name of this scheduler among the policies."""


def plan_micro_batches(
    lengths: Sequence[int],
    world_size: int,
    max_seqlen_per_rank: int,
    *,
    cost: Cost = DEFAULT_COST,
    tp: int = 1,
    sequence_parallel: bool = True,
    groups: str = "pow2",
    pp: int = 1,
    vpp: int = 1,
    min_cp_size: int = 1,
    layout: str = "zigzag",
    min_local_rows: int = 1,
    memory: Memory | None = None,
) -> Plan:
    """Assigns every sequence to one micro-batch and one group of ranks; deterministic.

    In each micro-batch the groups cover all ranks, and padded tokens stay within M. If a group could have the next
    smaller size without exceeding M or making its micro-batch longer, the ranks that this saves would idle: they
    wouldn't suffice to split any group of several sequences. Other schedulers' plans: `policies.plan_with`.

    Args:
        lengths: tokens of each sequence, unpadded, each >= 1.
        world_size: W, the ranks of DPxCP that one tensor and pipeline slice sees.
        max_seqlen_per_rank: M, the maximum number of padded tokens that a rank holds in a micro-batch.
        cost: what a sequence costs; its `comm` trades few ranks per sequence against balanced load.
        tp: tensor-parallel size. With `sequence_parallel`, sequences are padded to multiples of tp * 2 * C, else 2 * C.
        groups: which process groups exist: "main", "dev", "pow2" or "any" (see `usable_sizes`).
        pp, vpp: pipeline stages and model chunks of each: the plan's time is the sum over its micro-batches and the
            bubble, (pp - 1) / vpp times the slowest, so that a plan without one slow micro-batch is preferred.
        min_cp_size: no group is smaller (Megatron's min_dynamic_context_parallel_size).
        layout: layout on the ranks, "zigzag" (two chunks each) or "contiguous"; it determines the padding.
        min_local_rows: rows that each rank pads its micro-batch to (verl); M must not be below.
        memory: a limit on memory in addition to M.

    Raises HcpError for arguments of the wrong kind, and for lengths that fit on no group, naming the sequence and the
    smallest max_seqlen or world_size that would do.

    >>> plan = plan_micro_batches([3000, 900, 900], 4, 1024)
    >>> [(list(group.ranks), group.samples) for batch in plan.micro_batches for group in batch.groups]
    [([0, 1, 2, 3], (0,)), ([0, 1], (1,)), ([2, 3], (2,))]
    """
    max_seqlen = check_positive("max_seqlen", max_seqlen_per_rank)
    world_size = check_positive("world_size", world_size, MOST_RANKS)
    setup = Setup(cost, tp, sequence_parallel, groups, pp, vpp, min_cp_size, layout, min_local_rows, memory)
    setup = check_setup(setup, world_size, max_seqlen)
    lengths = check_lengths(lengths)
    workload = workload_of(list(lengths), world_size, max_seqlen, setup)
    _check_fit(workload, max_seqlen)
    batches = _as_planned(workload, lengths, max_seqlen)
    metrics = measure(batches, lengths, world_size, max_seqlen, setup)
    return Plan(OURS, world_size, max_seqlen, lengths, batches, metrics, setup)


def _as_planned(workload: Workload, lengths: tuple[int, ...], max_seqlen: int) -> tuple[MicroBatch, ...]:
    """The cheapest plan on ranks.

    Which groups span two nodes follows from their size, unless groups of any number of ranks are allowed: then it is
    known only now. Plans by time are made for both assumptions, sizes that stay inside a node wherever they can and
    sizes that do so only if they divide it, and the one that is faster on its ranks is taken.
    """
    setup, ranks = workload.setup, workload.world_size * workload.slot
    plans = cheap_plans(workload)
    if setup.groups != "any" or not setup.cost.by_time:
        return _placed(workload, plans[0])
    node = setup.cost.machine.traffic.ranks_per_node
    across = [size * workload.slot > node or node % (size * workload.slot) > 0 for size in workload.sizes]
    if across != workload.across:
        plans += cheap_plans(workload._replace(across=across))[:1]
    placed = [_placed(workload, plan) for plan in plans]
    return min(placed, key=lambda batches: measure(batches, lengths, ranks, max_seqlen, setup).estimated_s)


def _placed(workload: Workload, plan: list[Packs]) -> tuple[MicroBatch, ...]:
    """The longest micro-batch first; in each the widest groups first, so that each is aligned to its size."""
    plan.sort(key=lambda batch: max(pack.height for pack in batch), reverse=True)
    result = []
    for batch in plan:
        start, groups = 0, []
        for pack in _in_order(workload, batch):
            width = workload.sizes[pack.size] * workload.slot
            groups.append(Group(start, width, tuple(sorted([workload.ids[i] for i in pack.items]))))
            start += width
        assert start == workload.world_size * workload.slot, (start, workload.world_size)
        result.append(MicroBatch(tuple(groups)))
    return tuple(result)


def _in_order(workload: Workload, batch: Packs) -> Packs:
    """The widest first, so that each is aligned to its size; of any sizes, so that few have ranks on two nodes."""
    order = sorted(batch, key=lambda pack: (-pack.size, -pack.height, min(pack.items)))
    if workload.setup.groups != "any":
        return order
    node = max(1, workload.setup.cost.machine.traffic.ranks_per_node // workload.slot)
    placed: Packs = []
    start = 0
    while order:
        room = node - start % node
        wider = workload.sizes[order[0].size] > node
        fits = [0] if wider else [at for at, pack in enumerate(order) if workload.sizes[pack.size] <= room]
        pack = order.pop(fits[0] if fits else -1)
        placed.append(pack)
        start += workload.sizes[pack.size]
    return placed


def _check_fit(workload: Workload, max_seqlen: int) -> None:
    """Raises HcpError, with what would help, if the longest sequence fits nowhere, or M is too small to split."""
    setup, longest = workload.setup, workload.length[0]
    world_size = workload.world_size * workload.slot
    each = setup.chunks * setup.align  # what one of several ranks holds is a multiple of this
    if world_size > 1 and max_seqlen < each and longest <= workload.longest[0]:
        raise HcpError(
            f"max_seqlen: found {max_seqlen}, but on several ranks each holds a multiple of {each} padded tokens",
            do=f"raise it to {each}",
        )
    if workload.need[0] < len(workload.sizes):
        return
    most = setup.tokens(world_size, max_seqlen)
    bound = f"{most} padded tokens each" + (" (memory limit)" if most < max_seqlen else "")
    if most < max_seqlen:
        advice = "raise the memory limit"
    else:
        least = max(setup.padded(longest, world_size) // world_size, each if world_size > 1 else 1)
        advice = f"raise max_seqlen to {least}"
        if max_seqlen >= each:
            ranks = -(-longest // (max_seqlen // each * each))
            ranks += ranks % 2 if setup.groups in ("main", "dev") else 0
            advice += f" or world_size to {ranks}"
    raise HcpError(
        f"sequence {workload.ids[0]} has {longest} tokens, more than fit on {world_size} ranks of at most {bound}",
        do=advice,
    )
