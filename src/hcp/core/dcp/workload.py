"""What is to be scheduled: sequences by falling length, group sizes, and what fits on what."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, groupby
from math import log2
from typing import NamedTuple

from hcp.core.dcp.cost import Cost


class Pack:
    """Sequences that share a group, while it is made: `size` is an index into Workload.sizes, `room` free units."""

    __slots__ = ("height", "items", "room", "size")

    def __init__(self, size: int, height: float, room: int, items: list[int]) -> None:
        self.size = size
        self.height = height  # work per rank
        self.room = room
        self.items = items  # positions in Workload.length


Packs = list[Pack]
"""The groups of one micro-batch."""


class Workload(NamedTuple):
    """Arrays over the sequences, longest first (ties in the order given), and over the group sizes, smallest first.

    Tokens are counted in units, so that padding is exact: a group of size C holds its sequences padded to multiples of
    `unit[C]` = 2 * C * align tokens (C = 1: align), at most `capacity[C]` units, which is max_seqlen per rank.
    """

    world_size: int
    sizes: tuple[int, ...]
    unit: list[int]
    capacity: list[int]
    longest: list[int]  # per size: the longest sequence that fits alone
    ids: list[int]  # position -> index of the sequence as given
    length: list[int]
    work: list[float]
    need: list[int]  # index of the smallest size that holds the sequence
    runs: list[tuple[int, int, int]]  # (need, first, last + 1) of the sequences with the same need
    doublings: list[float]  # per size: log2
    falling: list[float]  # -work, ascending, for bisection
    shrinking: list[int]  # -length, the same
    work_before: list[float]  # prefix sums
    length_before: list[int]
    cost: Cost
    min_micro_batches: int  # what the padded tokens need at the least

    def units(self, size: int, position: int) -> int:
        """Units that a sequence takes in a group of this size."""
        return -(-self.length[position] // self.unit[size])

    def group(self, size: int, items: list[int]) -> Pack:
        """A group of this size with these sequences; its room is negative if they do not fit."""
        height = self.height(size, items)
        return Pack(size, height, self.capacity[size] - sum([self.units(size, i) for i in items]), items)

    def time(self, size: int, position: int) -> float:
        """Work per rank of a sequence alone on a group of this size."""
        return self.work[position] / self.sizes[size]

    def height(self, size: int, items: list[int]) -> float:
        """Work per rank of a group of this size with these sequences."""
        return sum([self.work[i] for i in items]) / self.sizes[size]

    def price(self, size: int, position: int) -> float:
        """What it costs to spread a sequence over a group of this size instead of the smallest that holds it."""
        return self.cost.comm * self.length[position] * (self.doublings[size] - self.doublings[self.need[position]])


def workload_of(
    lengths: list[int], world_size: int, max_seqlen: int, sizes: tuple[int, ...], cost: Cost, align: int
) -> Workload:
    """The sequences, sorted, with what each needs; one that fits nowhere has need = len(sizes)."""
    if max_seqlen < 2 * align:  # no room for a padded sequence on more than one rank
        sizes = sizes[:1]
    unit = [align if size == 1 else 2 * align * size for size in sizes]
    capacity = [max_seqlen // (align if size == 1 else 2 * align) for size in sizes]
    longest = [units * tokens for units, tokens in zip(capacity, unit)]
    ids = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    length = [lengths[i] for i in ids]
    need = [bisect_left(longest, tokens) for tokens in length]
    runs, start = [], 0
    for size, same in groupby(need):
        stop = start + sum(1 for _ in same)
        runs.append((size, start, stop))
        start = stop
    work = [cost.work(tokens) for tokens in length]
    return Workload(
        world_size=world_size, sizes=sizes, unit=unit, capacity=capacity, longest=longest, ids=ids, length=length,
        work=work, need=need, runs=runs, doublings=[log2(size) for size in sizes],
        falling=[-amount for amount in work], shrinking=[-tokens for tokens in length],
        work_before=[0.0, *accumulate(work)], length_before=[0, *accumulate(length)], cost=cost,
        min_micro_batches=-(-sum(-(-tokens // align) for tokens in length) // (world_size * max(1, capacity[0]))),
    )  # fmt: skip
