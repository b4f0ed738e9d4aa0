"""Fills micro-batches with the sequences that fit on one rank, so that the ranks of each end together."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from math import inf

from megatron_hcp.dcp.workload import Pack, Packs, Workload


def fill(workload: Workload, levels: list[tuple[Packs, int]], singles: list[int], widest: int) -> bool:
    """Adds a group for each single rank, then assigns sequences, longest first, to the group that lacks most work.

    What a group lacks follows from the height that its micro-batch should reach: that of its tallest group, or the one
    at which all the work is given out, whichever is more. Groups up to the size index `widest` take part. Micro-batches
    grow in place. Returns whether all sequences found room; with too few sequences, some ranks stay without a group.
    """
    work, length, sizes, unit = workload.work, workload.length, workload.sizes, workload.unit
    left = sum([work[i] for i in singles])
    sea = _sea_level(levels, left, [width if size <= widest else 0 for size, width in enumerate(sizes)])
    groups: list[Pack] = []
    lacks: list[float] = []
    first = 0
    for batch, ranks in levels:
        wanted = max(sea, batch[0].height if batch else 0.0)
        for group in batch:
            if group.size <= widest and group.room > 0:
                groups.append(group)
                lacks.append((group.height - wanted) * sizes[group.size])
        # Every rank needs work, so one sequence each comes first: the longest where the micro-batch is the tallest.
        for i in singles[first : first + ranks]:
            group = Pack(0, work[i], workload.capacity[0] - workload.units(0, i), [i])
            batch.append(group)
            if group.room:
                groups.append(group)
                lacks.append(work[i] - wanted)
        first += ranks
    heap = list(zip(lacks, range(len(groups))))
    heapify(heap)
    parked: list[tuple[int, float, int]] = []  # without room for now: (-longest that fits, what it lacks, which)
    for i in singles[first:]:
        tokens = length[i]
        while parked and -parked[0][0] >= tokens:
            _, lack, which = heappop(parked)
            heappush(heap, (lack, which))
        while heap:
            lack, which = heap[0]
            group = groups[which]
            units = -(-tokens // unit[group.size])
            if units <= group.room:
                group.room -= units
                group.height += workload.time(group.size, i) if group.size else work[i]
                group.items.append(i)
                heapreplace(heap, (lack + work[i], which))
                break
            heappop(heap)
            heappush(parked, (-group.room * unit[group.size], lack, which))
        else:
            return False
    return True


def fill_tightly(workload: Workload, levels: list[tuple[Packs, int]], singles: list[int]) -> bool:
    """Like `fill`, on single ranks only: each sequence, longest first, goes where it leaves the least room.

    Needs fewer micro-batches if the tokens nearly fill them, but balances work less well.
    """
    ranks = _Ranks(workload)
    for batch, free in levels:
        batch += [Pack(0, 0.0, workload.capacity[0], []) for _ in range(free)]
        for group in batch:
            if group.size == 0:
                ranks.add(group)
    placed = all(ranks.place(i) is not None for i in singles)
    for batch, _ in levels:
        batch[:] = [group for group in batch if group.items]
    return placed


def ranks_for(workload: Workload, singles: list[int]) -> int:
    """How many single ranks the sequences take, packed for room."""
    ranks, count = _Ranks(workload), 0
    for i in singles:
        if ranks.place(i) is None:
            ranks.add(Pack(0, 0.0, workload.capacity[0], []))
            count += 1
            ranks.place(i)
    return count


class _Ranks:
    """One-rank groups by their room, so that the fullest one that still holds a sequence is found at once."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.coarse = max(0, workload.capacity[0].bit_length() - 16)
        self.by_room: dict[int, list[Pack]] = {}
        self.some = 0  # bit r is set if by_room[r] is not empty

    def add(self, group: Pack) -> None:
        room = group.room >> self.coarse
        self.by_room.setdefault(room, []).append(group)
        self.some |= 1 << room

    def place(self, i: int) -> Pack | None:
        """The group that took the sequence, or None if none has the room."""
        units = self.workload.units(0, i)
        least = -(-units >> self.coarse)
        enough = self.some >> least
        if not enough:
            return None
        room = least + (enough & -enough).bit_length() - 1
        group = self.by_room[room].pop()
        if not self.by_room[room]:
            self.some ^= 1 << room
        group.room -= units
        group.height += self.workload.work[i]
        group.items.append(i)
        self.add(group)
        return group


def _sea_level(levels: list[tuple[Packs, int]], work: float, width: list[int]) -> float:
    """The height up to which the work fills the single ranks and the gaps of other groups below it or their tallest."""
    shores: list[tuple[float, int, float]] = []  # height of the tallest, ranks that share, their work
    for batch, ranks in levels:
        sharing = [group for group in batch if width[group.size]]
        ground = sum([group.height * width[group.size] for group in sharing])
        shores.append((batch[0].height if batch else 0.0, ranks + sum([width[g.size] for g in sharing]), ground))
    shores.sort()
    missing = work - sum([top * ranks - ground for top, ranks, ground in shores])
    if missing <= 0:
        return 0.0
    flooded = 0
    for (top, ranks, _), (above, _, _) in zip(shores, [*shores[1:], (inf, 0, 0.0)]):
        flooded += ranks
        if missing <= (above - top) * flooded:
            return top + missing / flooded
        missing -= (above - top) * flooded
    return 0.0  # no ranks at all
