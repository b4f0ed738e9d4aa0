"""The scheduler of Megatron-LM main and of every megatron-core from 0.16.0 on: it doesn't pack."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappush, heapreplace

from megatron_hcp.dcp.published.open_group import Batches, OpenGroup, cannot_widen, check_need, smallest_power

SLACK = 0.05
"""Ranks count as balanced when the least loaded has at least 1 - SLACK of the most loaded one's work."""
BUCKET = 1.1
"""A bucket is closed when it would exceed this fraction of its share of the work."""


def balanced_cp(lengths: Sequence[int], world_size: int, max_seqlen: int) -> Batches:
    """The plan of `BalancedCPScheduler`: what lies between two barriers, each sequence in its own forward pass.

    Every sequence has exactly the smallest power of two of ranks that holds it. Buckets of about equal work, longest
    first, are emptied in turn: a sequence opens a group while ranks are free, else it goes to the least loaded group of
    its size. From the first narrower sequence on, a micro-batch ends as soon as its ranks are balanced. The last
    sequence of the most loaded group is put back while that improves the balance, and idle ranks double the first of
    the smallest groups.

    Raises HcpError where upstream fails with an error. Source: Megatron-LM main,
    megatron/core/pipeline_parallel/hybrid_cp_schedule.py, BalancedCPScheduler; the class is identical in megatron-core
    0.16.0 to 0.19.0.

    >>> balanced_cp([3000, 900, 900, 100], 4, 1024)
    [[(4, [0])], [(2, [1]), (1, [2]), (1, [3])]]
    """
    check_need(lengths, world_size, max_seqlen, "main")
    waiting = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches: Batches = []
    while waiting:
        batch = _BarrierGroup(lengths, world_size, max_seqlen)
        waiting = batch.fill(_buckets(lengths, max_seqlen, waiting)) + batch.trim()
        batch.widen()
        batches.append([(group.size, group.samples) for group in batch.groups])
    return batches


def _buckets(lengths: Sequence[int], max_seqlen: int, waiting: list[int]) -> list[deque[int]]:
    """About as many buckets as sizes, each with about the same work; upstream's arithmetic unchanged."""
    sizes = [smallest_power(lengths[i], max_seqlen) for i in waiting]
    works = [lengths[i] * lengths[i] / size for i, size in zip(waiting, sizes)]
    remaining = len(set(sizes))
    target = sum(works) / remaining
    buckets: list[deque[int]] = []
    current: deque[int] = deque()
    filled = 0.0
    for at, (i, work) in enumerate(zip(waiting, works)):
        if current and (filled + work > target * BUCKET or len(waiting) - at <= remaining - len(buckets)):
            buckets.append(current)
            current, filled = deque(), 0.0
            remaining -= 1
        current.append(i)
        filled += work
    return [*buckets, current]


class _BarrierGroup:
    def __init__(self, lengths: Sequence[int], world_size: int, max_seqlen: int) -> None:
        self.lengths, self.world_size, self.max_seqlen = lengths, world_size, max_seqlen
        self.groups: list[OpenGroup] = []
        self.by_size: dict[int, list[tuple[float, int]]] = {}  # heaps of (load, position in groups)
        self.free = world_size

    def fill(self, buckets: list[deque[int]]) -> list[int]:
        """Places sequences until none fits or the ranks are balanced; returns the others, bucket by bucket."""
        first, may_end = 0, False
        while buckets:
            bucket = next((one for one in buckets if one and self._has_place(self._size(one[0]))), None)
            if bucket is None:
                break
            i = bucket.popleft()
            size = self._size(i)
            first = first or size
            self._place(i, size)
            while buckets and not buckets[0]:
                buckets.pop(0)
            may_end = may_end or size < first
            if may_end and buckets:
                most, least = self._bounds()
                if most - least <= SLACK * most:
                    break
        return [i for bucket in buckets for i in bucket]

    def _size(self, i: int) -> int:
        return smallest_power(self.lengths[i], self.max_seqlen)

    def _has_place(self, size: int) -> bool:
        return size in self.by_size or self.free >= size

    def _bounds(self) -> tuple[float, float]:
        loads = [group.load for group in self.groups]
        return max(loads), 0.0 if self.free else min(loads)

    def _place(self, i: int, size: int) -> None:
        heap = self.by_size.setdefault(size, [])
        work = self.lengths[i] * self.lengths[i] / size
        if self.free >= size:
            group = OpenGroup(size)
            heappush(heap, (work, len(self.groups)))
            self.groups.append(group)
            self.free -= size
        else:
            group = self.groups[heap[0][1]]
            heapreplace(heap, (group.load + work, heap[0][1]))
        group.load += work
        group.samples.append(i)

    def trim(self) -> list[int]:
        """Takes the last sequence from the most loaded group while that improves the balance; returns those taken."""
        taken: list[int] = []
        most, least = self._bounds()
        while most - least > SLACK * most and least:
            tallest = next(group for group in self.groups if group.load == most)
            if len(tallest.samples) <= 1:
                break
            before = tallest.load
            length = self.lengths[tallest.samples[-1]]
            tallest.load -= length * length / tallest.size
            now_most, now_least = self._bounds()
            if now_most - now_least >= most - least:
                tallest.load = before
                break
            taken.append(tallest.samples.pop())
            most, least = now_most, now_least
        return taken

    def widen(self) -> None:
        """Doubles the first of the smallest groups until no rank is idle."""
        while self.free:
            group = min(self.groups, key=lambda group: group.size)
            wider = min(2 * group.size, self.world_size)
            if wider - group.size > self.free:
                raise cannot_widen("main", self.world_size)
            self.free -= wider - group.size
            group.size = wider
