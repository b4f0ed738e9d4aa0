"""Megatron-LM dev's scheduler, also used by verl: one micro-batch at a time, packed while no rank gets too much."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.dcp.published.open_group import Batches, OpenGroup, cannot_widen, check_need, smallest_power

CAP = 1.05
"""A rank may have this fraction of the work that the micro-batch's longest sequence would have at M tokens per rank.
Packs of at most M tokens per rank stay below it anyway: sum(s**2) / C <= longest * sum(s) / C."""


def packing_aware(lengths: Sequence[int], world_size: int, max_seqlen: int) -> Batches:
    """The plan of `DefaultDynamicCPScheduler` without virtual pipeline stages, min_cp_size 1.

    The longest sequence opens the micro-batch. Each further one joins a group or opens one, of any power of two from
    its smallest on, wherever the largest load s**2 / C of any rank stays least and below the cap; one that fits nowhere
    waits for the next micro-batch. Idle ranks then double the first of the smallest groups; if that isn't possible, the
    micro-batch becomes one group of all ranks. Loads are kept per group, not per rank as upstream: the same plans,
    about ten times faster.

    Raises HcpError where upstream fails with an error. Source: Megatron-LM dev,
    megatron/core/datasets/data_schedule_utils.py, next_hdp_group_packing_aware.

    >>> packing_aware([6144, 2048], 2, 4096), packing_aware([10] * 3, 8, 100)
    ([[(2, [0, 1])]], [[(4, [0]), (2, [1]), (2, [2])]])
    """
    check_need(lengths, world_size, max_seqlen, "dev")
    waiting = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches: Batches = []
    while waiting:
        batch = _MicroBatch(lengths, world_size, max_seqlen, waiting[0])
        left = [i for i in waiting[1:] if not batch.takes(i)]
        while batch.free and batch.doubles():
            pass
        if batch.free:
            whole, left = _one_group(lengths, world_size, max_seqlen, waiting)
            batch.groups = [whole]
        batches.append([(group.size, group.samples) for group in batch.groups])
        waiting = left
    return batches


class _MicroBatch:
    def __init__(self, lengths: Sequence[int], world_size: int, max_seqlen: int, longest: int) -> None:
        self.lengths, self.world_size, self.max_seqlen = lengths, world_size, max_seqlen
        self.cap = lengths[longest] * max_seqlen * CAP
        self.groups: list[OpenGroup] = []
        self.by_size: dict[int, list[OpenGroup]] = {}
        self.emptiest: dict[int, float] = {}  # per size: the fewest tokens of a group
        self.free = world_size
        self.highest = 0.0
        self._place(longest, smallest_power(lengths[longest], max_seqlen), None)

    def takes(self, i: int) -> bool:
        """Places the sequence where the highest load stays lowest; on ties, the smallest size and the first group."""
        length, size = self.lengths[i], smallest_power(self.lengths[i], self.max_seqlen)
        best: tuple[float, int, OpenGroup | None] | None = None
        while size <= self.world_size:
            load = length * length / size
            has_room = size in self.emptiest and self.emptiest[size] + length / size <= self.max_seqlen
            for group in self.by_size[size] if has_room else ():
                highest = max(self.highest, group.load + load)
                fits = group.tokens + length / size <= self.max_seqlen and highest <= self.cap
                if fits and (best is None or highest < best[0]):
                    best = (highest, size, group)
            highest = max(self.highest, load)
            if self.free >= size and highest <= self.cap and (best is None or highest < best[0]):
                best = (highest, size, None)
            size *= 2
        if best is None:
            return False
        self._place(i, best[1], best[2])
        return True

    def _place(self, i: int, size: int, group: OpenGroup | None) -> None:
        if group is None:
            group = OpenGroup(size)
            self.groups.append(group)
            self.by_size.setdefault(size, []).append(group)
            self.free -= size
        group.tokens += self.lengths[i] / size
        group.load += self.lengths[i] * self.lengths[i] / size
        group.samples.append(i)
        self.highest = max(self.highest, group.load)
        self.emptiest[size] = min(one.tokens for one in self.by_size[size])

    def doubles(self) -> bool:
        """Whether the first of the smallest groups that ends before the last ranks could be doubled."""
        smallest = min(group.size for group in self.groups)
        wider = min(2 * smallest, self.world_size)
        growth, end = wider - smallest, 0
        for group in self.groups:
            end += group.size
            if group.size == smallest and end + growth <= self.world_size:
                if growth > self.free:
                    raise cannot_widen("dev", self.world_size)
                group.size = wider
                self.free -= growth
                return True
        return False


def _one_group(
    lengths: Sequence[int], world_size: int, max_seqlen: int, waiting: list[int]
) -> tuple[OpenGroup, list[int]]:
    """A group of all ranks with every sequence that still fits, longest first, and the others."""
    whole, left = OpenGroup(world_size), []
    for i in waiting:
        share = lengths[i] / world_size
        if whole.tokens + share <= max_seqlen:
            whole.tokens += share
            whole.samples.append(i)
        else:
            left.append(i)
    return whole, left
