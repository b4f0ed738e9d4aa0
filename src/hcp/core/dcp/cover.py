"""Gives every rank of a micro-batch work, and leaves no group wider than it has reason to be."""

from __future__ import annotations

from hcp.core.dcp.workload import Pack, Packs, Workload

TRIES = 12
"""How many sets of groups, each starting one group lower, are considered for one merge."""


def settle(workload: Workload, batch: Packs) -> list[Packs]:
    """The same sequences in groups that cover all W ranks, none wider than it has reason to be; `batch` is used up.

    First, groups that could be halved without breaking M or making the micro-batch longer are halved. Ranks that this
    or a lack of sequences leaves idle go to the tallest groups, which makes the micro-batch shorter; or groups merge
    into one wider than their sum. Where nothing of that works, all sequences go to groups of all W ranks, in one or
    several micro-batches.
    """
    sizes = workload.sizes
    batch = _halved(workload, batch)
    free = workload.world_size - sum([sizes[group.size] for group in batch])
    while free:
        grown = _grown(workload, batch, free) or _merged(workload, batch, free)
        if grown is None:
            return whole_groups(workload, sorted(i for group in batch for i in group.items))
        batch = grown
        free = workload.world_size - sum([sizes[group.size] for group in batch])
    return [batch]


def is_halvable(workload: Workload, group: Pack, tallest: float) -> bool:
    """Whether the next smaller size holds the group's sequences, no longer than `tallest`."""
    if group.size == 0:
        return False
    smaller = group.size - 1
    ratio = workload.sizes[group.size] / workload.sizes[smaller]
    if group.height * ratio > tallest:
        return False
    return sum([workload.units(smaller, i) for i in group.items]) <= workload.capacity[smaller]


def _halved(workload: Workload, batch: Packs) -> Packs:
    """Halves what can be halved: into two groups where there are two sequences, else into one and idle ranks."""
    tallest = max([group.height for group in batch])
    if not any(is_halvable(workload, group, tallest) for group in batch):
        return batch
    result: Packs = []
    waiting = batch[::-1]
    while waiting:
        group = waiting.pop()
        if not is_halvable(workload, group, tallest):
            result.append(group)
            continue
        halves: tuple[list[int], list[int]] = ([], [])
        loads = [0.0, 0.0]
        for i in sorted(group.items):
            lower = int(loads[1] < loads[0])
            halves[lower].append(i)
            loads[lower] += workload.work[i]
        waiting.extend(workload.group(group.size - 1, items) for items in reversed(halves) if items)
    return result


def _grown(workload: Workload, batch: Packs, free: int) -> Packs | None:
    """All tallest groups one size wider, if the idle ranks suffice."""
    tallest = max(group.height for group in batch)
    peaks = [group for group in batch if group.height == tallest]
    if any(group.size + 1 == len(workload.sizes) for group in peaks):
        return None
    wider = [workload.group(group.size + 1, group.items) for group in peaks]
    growth = sum(workload.sizes[group.size + 1] - workload.sizes[group.size] for group in peaks)
    if growth > free or any(group.room < 0 for group in wider):
        return None
    return [group for group in batch if group.height != tallest] + wider


def _merged(workload: Workload, batch: Packs, free: int) -> Packs | None:
    """Groups of together C - c ranks in one group of C ranks that could not do with C / 2, for the least price.

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
    """The sequences in as few groups of all W ranks as first fit makes of them, one per micro-batch."""
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
            group.height += workload.work[i] / workload.sizes[size]
    return [[group] for group in groups]
