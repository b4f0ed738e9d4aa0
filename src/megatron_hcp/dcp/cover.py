"""Gives every rank of a micro-batch work, and makes no group wider than necessary."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from megatron_hcp.dcp.workload import Pack, Packs, Workload

TRIES = 12
"""How many sets of groups, each starting one group lower, are considered for one merge."""


def settle(workload: Workload, batch: Packs) -> list[Packs]:
    """The same sequences in groups that cover all W ranks, none wider than necessary; consumes `batch`.

    First, groups for which the next smaller size suffices, without exceeding M or making the micro-batch longer, get
    it. Ranks left idle by this or by a lack of sequences go, in this order,

    1. to the tallest groups, if there are enough for all of them: the micro-batch gets shorter; 2. to a group of
    several sequences, which becomes two groups; 3. to the groups with the fewest tokens, only so that no rank is idle;
    4. if the sizes don't add up to W, to a merger of groups, wider than their sum.

    If none of that works, all sequences go to groups of all W ranks, in one or several micro-batches.
    """
    batch = _narrowed(workload, batch)
    free = workload.world_size - sum([workload.sizes[group.size] for group in batch])
    while free:
        before = free
        for use_idle in (_grow, _divide, _widen):
            free = use_idle(workload, batch, free) if free else 0
        if free == before:
            merged = _merged(workload, batch, free)
            if merged is None:
                return whole_groups(workload, sorted(i for group in batch for i in group.items))
            batch = merged
            free = workload.world_size - sum([workload.sizes[group.size] for group in batch])
    return [batch]


def is_halvable(workload: Workload, group: Pack, tallest: float) -> bool:
    """Whether the next smaller size holds the group's sequences without exceeding the height `tallest`."""
    if group.size == 0:
        return False
    smaller = group.size - 1
    if workload.height(smaller, group.items) > tallest:
        return False
    return sum([workload.units(smaller, i) for i in group.items]) <= workload.capacity[smaller]


def _narrowed(workload: Workload, batch: Packs) -> Packs:
    """Halves what can be halved: into two groups if there are two sequences, else into one group and idle ranks."""
    tallest = max([group.height for group in batch])
    if not any(group.size and is_halvable(workload, group, tallest) for group in batch):
        return batch
    return _narrowed_to(workload, batch, tallest)


def _narrowed_to(workload: Workload, batch: Packs, tallest: float) -> Packs:
    result: Packs = []
    waiting = batch[::-1]
    while waiting:
        group = waiting.pop()
        if not is_halvable(workload, group, tallest):
            result.append(group)
        elif 2 * workload.sizes[group.size - 1] <= workload.sizes[group.size]:
            waiting.extend(_halves(workload, group, group.size - 1)[::-1])
        else:
            waiting.append(workload.group(group.size - 1, group.items))
    return result


def _halves(workload: Workload, group: Pack, size: int) -> Packs:
    """The sequences of a group, divided evenly by work onto two of this size; one of them if there is one sequence."""
    halves: tuple[list[int], list[int]] = ([], [])
    loads = [0.0, 0.0]
    for i in sorted(group.items):
        lower = int(loads[1] < loads[0])
        halves[lower].append(i)
        loads[lower] += workload.work[i]
    return [workload.group(size, items) for items in halves if items]


def _wider(workload: Workload, group: Pack, free: int) -> Pack | None:
    """The group one size wider, if so many idle ranks suffice and its padded sequences fit."""
    if group.size + 1 == len(workload.sizes):
        return None
    if workload.sizes[group.size + 1] - workload.sizes[group.size] > free:
        return None
    wider = workload.group(group.size + 1, group.items)
    return wider if wider.room >= 0 else None


def _grow(workload: Workload, batch: Packs, free: int) -> int:
    """Makes all tallest groups one size wider, as often as that works and helps; returns the ranks still idle."""
    order = [(-group.height, number) for number, group in enumerate(batch)]
    heapify(order)
    while free:
        tallest = order[0][0]
        peaks: list[int] = []
        while order and order[0][0] == tallest:
            peaks.append(heappop(order)[1])
        left, wider = free, []
        for number in peaks:
            grown = _wider(workload, batch[number], left)
            if grown is None or grown.height >= -tallest:
                return free
            left -= workload.sizes[grown.size] - workload.sizes[batch[number].size]
            wider.append(grown)
        for number, grown in zip(peaks, wider):
            batch[number] = grown
            heappush(order, (-grown.height, number))
        free = left
    return free


def _divide(workload: Workload, batch: Packs, free: int) -> int:
    """Splits groups with several sequences in two, the tallest first; returns the ranks still idle."""
    order = [(-group.height, number) for number, group in enumerate(batch) if len(group.items) > 1]
    heapify(order)
    tallest = max([group.height for group in batch])
    while free and order:
        _, number = heappop(order)
        group = batch[number]
        if workload.sizes[group.size] > free:
            continue
        halves = _halves(workload, group, group.size)
        parts = _narrowed_to(workload, halves, tallest)
        free += workload.sizes[group.size] - sum([workload.sizes[part.size] for part in parts])
        places = [number, *range(len(batch), len(batch) + len(parts) - 1)]
        batch[number] = parts[0]
        batch += parts[1:]
        for place, part in zip(places, parts):
            if len(part.items) > 1:
                heappush(order, (-part.height, place))
    return free


def _widen(workload: Workload, batch: Packs, free: int) -> int:
    """Makes groups wider only so that no rank is idle, those with the fewest tokens first, the tallest last.

    A group of several sequences is better split in two: it is widened only if `_divide` couldn't do that and the sizes
    leave no other choice. Returns the ranks still idle.
    """
    tallest = max([group.height for group in batch])

    def key(number: int, wider: Pack) -> tuple[bool, bool, int, int]:
        tokens = sum([workload.length[i] for i in wider.items])
        return len(wider.items) > 1, wider.height > tallest, tokens, number

    order = []
    for number, group in enumerate(batch):
        wider = _wider(workload, group, free)
        if wider is not None:
            order.append((*key(number, wider), wider))
    heapify(order)
    while free and order:
        number, wider = heappop(order)[3:]
        growth = workload.sizes[wider.size] - workload.sizes[batch[number].size]
        if growth > free:
            continue
        batch[number], free = wider, free - growth
        next_wider = _wider(workload, wider, free)
        if next_wider is not None:
            heappush(order, (*key(number, next_wider), next_wider))
    return free


def _merged(workload: Workload, batch: Packs, free: int) -> Packs | None:
    """Merges groups with C - c ranks in total into one group of C ranks for which C / 2 wouldn't do, at least price.

    c is the lowest bit of the number of idle ranks: the sizes are powers of two, so some such c fits first.
    """
    gain = free & -free
    tallest = max(group.height for group in batch)
    for size, width in enumerate(workload.sizes):
        if width < 4 * gain or width & (width - 1) or width > workload.world_size:
            continue
        pool = [group for group in batch if workload.sizes[group.size] <= width - gain]
        pool.sort(key=lambda group: (-group.height, sum([workload.length[i] for i in group.items])))
        best: tuple[float, list[Pack], Pack] | None = None
        for start in range(min(len(pool), TRIES)):
            parts = _of_total(workload, pool[start:], width - gain)
            if parts is None:
                continue
            whole = workload.group(size, [i for group in parts for i in group.items])
            if whole.room < 0 or 2 * whole.height <= tallest:
                continue
            price = sum(workload.price(size, i) - workload.price(part.size, i) for part in parts for i in part.items)
            if best is None or price < best[0]:
                best = price, parts, whole
        if best is not None:
            used = set(map(id, best[1]))
            return [group for group in batch if id(group) not in used] + [best[2]]
    return None


def _of_total(workload: Workload, pool: list[Pack], ranks: int) -> list[Pack] | None:
    """The first groups of the pool, in its order, that have exactly so many ranks."""
    parts = []
    for group in pool:
        if workload.sizes[group.size] <= ranks:
            parts.append(group)
            ranks -= workload.sizes[group.size]
            if not ranks:
                return parts
    return None


def whole_groups(workload: Workload, items: list[int]) -> list[Packs]:
    """The sequences in as few groups of all W ranks as first fit needs, one per micro-batch."""
    size = len(workload.sizes) - 1
    groups: list[Pack] = []
    for i in items:
        units = workload.units(size, i)
        group = next((group for group in groups if group.room >= units), None)
        if group is None:
            groups.append(workload.group(size, [i]))
        else:
            group.items.append(i)
            group.room -= units
            group.height += workload.time(size, i)
    return [[group] for group in groups]
