"""What is to be scheduled: sequences by decreasing length, group sizes, and what fits where."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, groupby
from math import log2
from typing import NamedTuple

from megatron_hcp.dcp.setup import Setup


class Pack:
    """Sequences that share a group under construction: `size` is an index into Workload.sizes, `room` free units."""

    __slots__ = ("height", "items", "room", "size")

    def __init__(self, size: int, height: float, room: int, items: list[int]) -> None:
        self.size = size
        self.height = height  # work per rank
        self.room = room
        self.items = items  # positions in Workload.length


Packs = list[Pack]
"""The groups of one micro-batch."""

SHORTER = 0.999
"""A wider group counts as shorter if its time is below this fraction of the narrower one's."""


class Workload(NamedTuple):
    """Arrays over the sequences, longest first (ties in the order given), and over the group sizes, smallest first.

    Tokens are counted in units, so that padding is exact: a group of size C holds its sequences padded to multiples of
    `unit[C]` tokens (see `Setup.multiple`), at most `capacity[C]` units, which is max_seqlen per rank. Ranks are
    counted in slots of min_cp_size, almost always 1: `world_size`, `sizes` and work per rank are all in slots.
    """

    setup: Setup
    slot: int
    world_size: int
    sizes: tuple[int, ...]
    unit: list[int]
    capacity: list[int]
    longest: list[int]  # per size: the longest sequence that fits alone
    ids: list[int]  # position -> index of the sequence as given
    length: list[int]
    work: list[float]
    attention: list[float]  # the part of the work that hides communication; empty unless planned by time
    need: list[int]  # index of the smallest size that holds the sequence
    runs: list[tuple[int, int, int]]  # (need, first, last + 1) of the sequences with the same need
    doublings: list[float]  # per size: log2
    across: list[bool]  # per size: whether such a group has ranks on several nodes
    falling: list[float]  # -work, ascending, for bisection
    shrinking: list[int]  # -length, the same
    work_before: list[float]  # prefix sums
    length_before: list[int]
    min_micro_batches: int  # the minimum that the padded tokens need

    def units(self, size: int, position: int) -> int:
        """Units that a sequence occupies in a group of this size."""
        return -(-self.length[position] // self.unit[size])

    def group(self, size: int, items: list[int]) -> Pack:
        """A group of this size with these sequences; its room is negative if they don't fit."""
        height = self.height(size, items)
        return Pack(size, height, self.capacity[size] - sum([self.units(size, i) for i in items]), items)

    def time(self, size: int, position: int) -> float:
        """Height of a group of this size with only this sequence."""
        height = self.work[position] / self.sizes[size]
        if self.attention and self.sends(size):
            height += self._exposed(size, self.length[position], self.attention[position])
        return height

    def height(self, size: int, items: list[int]) -> float:
        """Work per rank of a group of this size with these sequences; by time, with what communication adds."""
        height = sum([self.work[i] for i in items]) / self.sizes[size]
        if self.attention and self.sends(size):
            tokens, attention = sum([self.length[i] for i in items]), sum([self.attention[i] for i in items])
            height += self._exposed(size, tokens, attention)
        return height

    def sends(self, size: int) -> bool:
        """Whether groups of this size have several ranks and so communicate."""
        return self.sizes[size] * self.slot > 1

    def _exposed(self, size: int, tokens: int, attention: float) -> float:
        machine = self.setup.cost.machine
        ranks = self.sizes[size] * self.slot
        hiding = attention * machine.unit_s / ranks
        exposed = machine.traffic.exposed_s(ranks, tokens / ranks, hiding, self.across[size])
        return exposed * self.slot / machine.unit_s

    def narrowest(self, position: int, height: float) -> int:
        """The smallest size that holds the sequence without exceeding `height`; else the fastest one."""
        need, last = self.need[position], len(self.sizes) - 1
        if not self.attention:
            return min(last, max(need, bisect_left(self.sizes, self.work[position] / height)))
        best, least = need, self.time(need, position)
        for size in range(need + 1, last + 1):
            if least <= height:
                break
            time = self.time(size, position)
            if time < SHORTER * least:
                best, least = size, time
        return best

    def price(self, size: int, position: int) -> float:
        """What it costs to spread a sequence over a group of this size instead of the smallest that holds it."""
        doublings = self.doublings[size] - self.doublings[self.need[position]]
        return self.setup.cost.comm * self.length[position] * doublings


def workload_of(lengths: list[int], world_size: int, max_seqlen: int, setup: Setup) -> Workload:
    """The sequences, sorted, with what each needs; one that fits nowhere has need = len(sizes)."""
    ranks = setup.sizes(world_size)
    if max_seqlen < setup.chunks * setup.align:  # no room for a padded sequence on more than one rank
        ranks = ranks[:1]
    if setup.memory is not None:
        ranks = _never_less(ranks, setup, max_seqlen)
    unit = [setup.multiple(size) for size in ranks]
    capacity = [size * setup.tokens(size, max_seqlen) // multiple for size, multiple in zip(ranks, unit)]
    longest = [units * tokens for units, tokens in zip(capacity, unit)]
    ids = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    length = [lengths[i] for i in ids]
    need = [bisect_left(longest, tokens) for tokens in length]
    cost, slot = setup.cost, setup.min_cp_size
    work = [cost.work(tokens) for tokens in length]
    node = cost.machine.traffic.ranks_per_node
    return Workload(
        setup=setup, slot=slot, world_size=world_size // slot, sizes=tuple([size // slot for size in ranks]),
        unit=unit, capacity=capacity, longest=longest, ids=ids, length=length, work=work,
        attention=[cost.attention(tokens) for tokens in length] if cost.by_time else [],
        need=need, runs=_runs(need), doublings=[log2(size) for size in ranks],
        across=[size > node or (setup.groups != "any" and node % size > 0) for size in ranks],
        falling=[-amount for amount in work], shrinking=[-tokens for tokens in length],
        work_before=[0.0, *accumulate(work)], length_before=[0, *accumulate(length)],
        min_micro_batches=_min_micro_batches(length, unit, capacity, world_size // slot),
    )  # fmt: skip


def part(workload: Workload, positions: list[int]) -> Workload:
    """The workload of some of the sequences, by rising position: these become its `ids`."""
    length = [workload.length[i] for i in positions]
    work = [workload.work[i] for i in positions]
    need = [workload.need[i] for i in positions]
    return workload._replace(
        ids=positions, length=length, work=work, need=need, runs=_runs(need),
        attention=[workload.attention[i] for i in positions] if workload.attention else [],
        falling=[-amount for amount in work], shrinking=[-tokens for tokens in length],
        work_before=[0.0, *accumulate(work)], length_before=[0, *accumulate(length)],
        min_micro_batches=_min_micro_batches(length, workload.unit, workload.capacity, workload.world_size),
    )  # fmt: skip


def _runs(need: list[int]) -> list[tuple[int, int, int]]:
    runs, start = [], 0
    for size, same in groupby(need):
        stop = start + sum(1 for _ in same)
        runs.append((size, start, stop))
        start = stop
    return runs


def _min_micro_batches(length: list[int], unit: list[int], capacity: list[int], world_size: int) -> int:
    units = sum([-(-tokens // unit[0]) for tokens in length])
    return -(-units // (world_size * max(1, capacity[0])))


def _never_less(ranks: tuple[int, ...], setup: Setup, max_seqlen: int) -> tuple[int, ...]:
    """The sizes without those that, by rounding, hold more than a wider one: what fits one fits all wider ones."""
    kept = [ranks[-1]]
    for size in reversed(ranks[:-1]):
        most = [each * setup.tokens(each, max_seqlen) // setup.multiple(each) for each in (size, kept[-1])]
        if most[0] * setup.multiple(size) <= most[1] * setup.multiple(kept[-1]):
            kept.append(size)
    return tuple(reversed(kept))
