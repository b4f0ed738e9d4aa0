"""Published schedulers to compare with, each as [micro-batch][(group size, samples)]; written from their descriptions.

megatron-core's installed scheduler is the original itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hcp.core.dcp import Cost, split_pr5869

Batches = list[list[tuple[int, list[int]]]]
CAP = 1.05


def smallest_power(length: int, max_seqlen: int) -> int:
    size = 1
    while size * max_seqlen < length:
        size *= 2
    return size


def packing_aware(lengths: Sequence[int], world_size: int, max_seqlen: int) -> Batches:
    """Megatron-LM dev's `next_hdp_group_packing_aware`, used by verl HEAD: one micro-batch at a time, longest first.

    A sequence joins a group or opens one, of any size from its smallest on, wherever the largest load s**2 / C of any
    rank stays least and under a cap; empty ranks are filled by doubling the first of the smallest groups. Loads are
    kept per group, not per rank as in the original: the same plans, about ten times sooner.
    """
    waiting = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches: Batches = []
    while waiting:
        cap = lengths[waiting[0]] * max_seqlen * CAP
        groups: list[list] = []  # [size, tokens per rank, load, samples]
        alike: dict[int, list[list]] = {}
        free, highest, left = world_size, 0.0, []
        for i in waiting:
            length, size = lengths[i], smallest_power(lengths[i], max_seqlen)
            best: tuple[float, int, list | None] | None = None
            if not groups:
                best = (0.0, size, None)
            while groups and size <= world_size:
                load = length * length / size
                for group in alike.get(size, ()):
                    highest_then = max(highest, group[2] + load)
                    fits = group[1] + length / size <= max_seqlen and highest_then <= cap
                    if fits and (best is None or highest_then < best[0]):
                        best = (highest_then, size, group)
                highest_then = max(highest, load)
                if free >= size and highest_then <= cap and (best is None or highest_then < best[0]):
                    best = (highest_then, size, None)
                size *= 2
            if best is None:
                left.append(i)
                continue
            _, size, group = best
            if group is None:
                group = [size, 0.0, 0.0, []]
                groups.append(group)
                alike.setdefault(size, []).append(group)
                free -= size
            group[1] += length / size
            group[2] += length * length / size
            group[3].append(i)
            highest = max(highest, group[2])
        while free and (free := _doubled(groups, free, world_size)) > 0:
            pass
        if free:
            groups, left, tokens = [[world_size, 0.0, 0.0, []]], [], 0.0
            for i in waiting:
                if tokens + lengths[i] / world_size <= max_seqlen:
                    tokens += lengths[i] / world_size
                    groups[0][3].append(i)
                else:
                    left.append(i)
        batches.append([(group[0], group[3]) for group in groups])
        waiting = left
    return batches


def _doubled(groups: list[list], free: int, world_size: int) -> int:
    """Doubles the first of the smallest groups that can be; the ranks still free then, or -1 if none can."""
    smallest = min(group[0] for group in groups)
    size, start = min(2 * smallest, world_size), 0
    for group in groups:
        end = start + group[0] - 1
        growth = size - smallest
        inside = end + 1 <= world_size - free and end + growth < world_size
        if group[0] == smallest and inside and growth <= free:
            group[0] = size
            return free - growth
        start += group[0]
    return -1


def pr5869(lengths: Sequence[int], world_size: int, max_seqlen: int, cost: Cost) -> Batches:
    """verl pull request #5869: as many micro-batches as the tokens need, even in work, each split by its own rule.

    Micro-batches are filled longest first, always the one with the least work (the original differences the largest).
    Tokens per rank are not bounded by max_seqlen, as there.
    """
    count = min(len(lengths), -(-sum(lengths) // (max_seqlen * world_size)))
    parts: list[list[int]] = [[] for _ in range(count)]
    heap = [(0.0, part) for part in range(count)]
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        work, part = heap[0]
        parts[part].append(i)
        heapq.heapreplace(heap, (work + cost.work(lengths[i]), part))
    batches: Batches = []
    for part in parts:
        part.sort()
        split = split_pr5869([lengths[i] for i in part], world_size, max_seqlen)
        batches.append([(split.local_cp_size, [part[k] for k in own]) for own in split.samples])
    return batches


def installed(lengths: Sequence[int], world_size: int, max_seqlen: int) -> list[list[list[int]]]:
    """megatron-core's BalancedCPScheduler: [barriered group][rank] -> samples, one forward pass each."""
    from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler

    class DPxCP:
        def size(self) -> int:
            return world_size

    scheduler = BalancedCPScheduler(max_seqlen, DPxCP())
    return scheduler.get_groups_and_subsamples(list(enumerate(lengths)), None)[1]
