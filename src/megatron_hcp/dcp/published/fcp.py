"""Flexible context parallelism (arXiv 2602.21788): packs on any number of ranks, then extra ranks for the slowest."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace

from megatron_hcp.dcp.published.open_group import Batches
from megatron_hcp.ground.errors import HcpError


def flexible(lengths: Sequence[int], world_size: int, max_seqlen: int, work: Callable[[int], float]) -> Batches:
    """A plan in the paper's two stages; `work` is that of one sequence over all its ranks.

    Best fit, longest first, makes packs: a sequence opens one of ceil(s / M) ranks, or goes where it leaves the least
    room. In each micro-batch the remaining ranks are then assigned so that the slowest group is as fast as possible.

    Approximated, where the paper doesn't specify it or its numbers are for another machine: a group's time is its work
    over its ranks, without communication; packs go to the first micro-batch with enough ranks left, in the order in
    which they were opened; and ranks go one by one to the slowest group, which gives the same slowest group as the
    paper's dynamic program if an additional rank never makes a group slower.

    Raises HcpError if a sequence needs more ranks than there are. Source: arXiv 2602.21788 (v1 as DHP, v2 as FCP),
    sequence packing and resource allocation.

    >>> flexible([3000, 900, 900, 100], 5, 1024, float)
    [[(3, [0]), (1, [1, 3]), (1, [2])]]
    """
    packs = _packed(lengths, world_size, max_seqlen)
    batches: list[list[tuple[int, list[int]]]] = []
    free: list[int] = []
    for size, samples in packs:
        at = next((at for at, ranks in enumerate(free) if ranks >= size), len(free))
        if at == len(free):
            free.append(world_size)
            batches.append([])
        free[at] -= size
        batches[at].append((size, samples))
    return [_widened(batch, ranks, lengths, work) for batch, ranks in zip(batches, free)]


def _packed(lengths: Sequence[int], world_size: int, max_seqlen: int) -> list[tuple[int, list[int]]]:
    packs: list[tuple[int, list[int]]] = []
    room: list[tuple[int, int]] = []  # (tokens that a pack still holds, which), ascending
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[i]
        at = bisect_left(room, (length, -1))
        if at < len(room):
            left, which = room.pop(at)
        else:
            size = max(1, -(-length // max_seqlen))
            if size > world_size:
                raise HcpError(
                    f"policy fcp: sequence {i} has {length} tokens and needs {size} ranks of at most {max_seqlen} "
                    f"tokens, found {world_size}",
                    do="raise max_seqlen or world_size",
                )
            left, which = size * max_seqlen, len(packs)
            packs.append((size, []))
        packs[which][1].append(i)
        insort(room, (left - length, which))
    return packs


def _widened(
    batch: list[tuple[int, list[int]]], free: int, lengths: Sequence[int], work: Callable[[int], float]
) -> list[tuple[int, list[int]]]:
    """The groups with all idle ranks assigned, each to the currently slowest group."""
    works = [sum(work(lengths[i]) for i in samples) for _, samples in batch]
    sizes = [size for size, _ in batch]
    slowest = [(-amount / size, at) for at, (amount, size) in enumerate(zip(works, sizes))]
    heapify(slowest)
    for _ in range(free):
        at = slowest[0][1]
        sizes[at] += 1
        heapreplace(slowest, (-works[at] / sizes[at], at))
    return [(size, samples) for size, (_, samples) in zip(sizes, batch)]
