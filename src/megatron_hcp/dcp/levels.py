"""From a height to micro-batches: which size each sequence gets, and which groups run side by side."""

from __future__ import annotations

import itertools
from bisect import bisect_left

from megatron_hcp.dcp.workload import Pack, Packs, Workload

NARROW = 0.9
"""A group lower than this fraction of the height accepts further sequences."""


def group_sizes(workload: Workload, height: float) -> tuple[list[list[range]], range]:
    """The smallest size for each sequence that holds it and keeps its work per rank at most `height`.

    Returns, per size above 1, the ranges of positions that get it (longest first), and the range left for single ranks.
    """
    sizes, falling = workload.sizes, workload.falling
    ranges: list[list[range]] = [[] for _ in sizes]
    singles = range(len(falling), len(falling))
    for need, start, end in workload.runs:
        while start < end:
            size = workload.narrowest(start, height)
            if size == need:
                stop = end
            elif workload.attention:
                stop = _first_narrower(workload, height, size, start, end)
            else:
                stop = max(start + 1, bisect_left(falling, -height * sizes[size - 1], start, end))
            if size == 0:
                singles = range(start, stop)
            else:
                ranges[size].append(range(start, stop))
            start = stop
    return ranges, singles


def _first_narrower(workload: Workload, height: float, size: int, start: int, end: int) -> int:
    """The first position after start whose sequence needs less than this size; times decrease with the length."""
    low, high = start + 1, end
    while low < high:
        middle = (low + high) // 2
        if workload.narrowest(middle, height) < size:
            high = middle
        else:
            low = middle + 1
    return low


def groups_apart(workload: Workload, height: float) -> tuple[list[list[Pack]], list[int]]:
    """One group for each sequence that needs several ranks at this height, per size, tallest last; and the rest."""
    ranges, singles = group_sizes(workload, height)
    work, length = workload.work, workload.length
    groups: list[list[Pack]] = []
    for size, parts in enumerate(ranges):
        width, unit, capacity = workload.sizes[size], workload.unit[size], workload.capacity[size]
        if workload.attention:
            heights = [workload.time(size, i) for part in parts for i in part]
        else:
            heights = [work[i] / width for part in parts for i in part]
        groups.append([
            Pack(size, tall, capacity - -(-length[i] // unit), [i])
            for tall, i in zip(heights, itertools.chain(*parts))
        ])  # fmt: skip
        groups[-1].reverse()
    return groups, list(singles)


def groups_joined(workload: Workload, height: float) -> tuple[list[list[Pack]], list[int]]:
    """Like `groups_apart`, but a group with height to spare accepts further sequences, the largest that fits first.

    Worthwhile if sequences are few: the ranks that the second sequence frees make another group wider.
    """
    ranges, singles = group_sizes(workload, height)
    sizes, work, length, falling, shrinking = (
        workload.sizes, workload.work, workload.length, workload.falling, workload.shrinking
    )  # fmt: skip
    size_of = [0] * len(work)
    for size, parts in enumerate(ranges):
        for part in parts:
            size_of[part.start : part.stop] = [size] * len(part)
    groups: list[list[Pack]] = [[] for _ in sizes]
    waiting = _Waiting(len(work))
    for i in range(singles.start):
        if waiting.first(i) != i:
            continue
        waiting.take(i)
        size = size_of[i]
        unit, width = workload.unit[size], sizes[size]
        group = Pack(size, workload.time(size, i), workload.capacity[size] - -(-length[i] // unit), [i])
        while group.height < NARROW * height and group.room:
            fits_height = bisect_left(falling, (group.height - height) * width, i)
            item = waiting.first(max(fits_height, bisect_left(shrinking, -group.room * unit, i)))
            if item == len(work):
                break
            saved = min(sizes[size_of[item]] * height, 2 * work[item])
            if workload.price(size, item) - workload.price(size_of[item], item) > saved:
                break
            waiting.take(item)
            group.items.append(item)
            group.height += workload.time(size, item)
            group.room -= -(-length[item] // unit)
        groups[size].append(group)
    for some in groups:
        some.sort(key=lambda group: (group.height, -group.items[0]))
    return groups, [i for i in singles if waiting.first(i) == i]


class _Waiting:
    """The sequences without a group; `first(i)` is the first such one from i on, in nearly constant time."""

    def __init__(self, count: int) -> None:
        self.next = list(range(count + 1))

    def first(self, i: int) -> int:
        following = self.next
        while following[i] != i:
            following[i] = following[following[i]]
            i = following[i]
        return i

    def take(self, i: int) -> None:
        self.next[i] = i + 1


def cut(workload: Workload, groups: list[list[Pack]], single_ranks: int, level: float) -> list[tuple[Packs, int]]:
    """Cuts the groups (per size, tallest last; emptied) into micro-batches, tallest first, each W ranks wide.

    `single_ranks` ranks carry single-rank groups of about the height `level`, made later: they take their place in the
    order. Returns each micro-batch with the number of its ranks for those; what no group fits on counts as one of them.
    """
    sizes = workload.sizes
    filled = [size for size in range(len(sizes) - 1, -1, -1) if groups[size]]
    left = sum(map(len, groups))
    result: list[tuple[Packs, int]] = []
    while left or single_ranks > 0:
        free, singles, batch = workload.world_size, 0, []
        while free:
            tallest, best = -1.0, -1
            for size in filled:
                if sizes[size] <= free and groups[size] and groups[size][-1].height > tallest:
                    tallest, best = groups[size][-1].height, size
            if single_ranks > 0 and level >= tallest:
                taken = min(free, single_ranks)
                singles, single_ranks, free = singles + taken, single_ranks - taken, free - taken
            elif best >= 0:
                batch.append(groups[best].pop())
                free -= sizes[best]
                left -= 1
            else:
                break
        result.append((batch, singles + free))
    return result
