"""Gives every rank of a micro-batch work, and leaves no group wider than it has reason to be."""

from __future__ import annotations

from hcp.core.dcp.problem import MicroBatch, Pack, Problem

TRIES = 12
"""How many sets of groups, each starting one group lower, are considered for one merge."""


def settle(problem: Problem, batch: MicroBatch) -> list[MicroBatch]:
    """The same sequences in groups that cover all W ranks, none wider than it has reason to be; `batch` is used up.

    First, groups that could be halved without breaking M or making the micro-batch longer are halved. Ranks that this
    or a lack of sequences leaves idle go to the tallest groups, which makes the micro-batch shorter; or groups merge
    into one wider than their sum. Where nothing of that works, all sequences go to groups of all W ranks, in one or
    several micro-batches.
    """
    sizes = problem.sizes
    batch = _halved(problem, batch)
    free = problem.world_size - sum([sizes[group.size] for group in batch])
    while free:
        grown = _grown(problem, batch, free) or _merged(problem, batch, free)
        if grown is None:
            return whole_groups(problem, sorted(i for group in batch for i in group.items))
        batch = grown
        free = problem.world_size - sum([sizes[group.size] for group in batch])
    return [batch]


def is_halvable(problem: Problem, group: Pack, tallest: float) -> bool:
    """Whether the next smaller size holds the group's sequences, no longer than `tallest`."""
    if group.size == 0:
        return False
    smaller = group.size - 1
    ratio = problem.sizes[group.size] / problem.sizes[smaller]
    if group.height * ratio > tallest:
        return False
    return sum([problem.units(smaller, i) for i in group.items]) <= problem.capacity[smaller]


def _halved(problem: Problem, batch: MicroBatch) -> MicroBatch:
    """Halves what can be halved: into two groups where there are two sequences, else into one and idle ranks."""
    tallest = max([group.height for group in batch])
    if not any(is_halvable(problem, group, tallest) for group in batch):
        return batch
    result: MicroBatch = []
    waiting = batch[::-1]
    while waiting:
        group = waiting.pop()
        if not is_halvable(problem, group, tallest):
            result.append(group)
            continue
        halves: tuple[list[int], list[int]] = ([], [])
        loads = [0.0, 0.0]
        for i in sorted(group.items):
            lower = int(loads[1] < loads[0])
            halves[lower].append(i)
            loads[lower] += problem.work[i]
        waiting.extend(problem.group(group.size - 1, items) for items in reversed(halves) if items)
    return result


def _grown(problem: Problem, batch: MicroBatch, free: int) -> MicroBatch | None:
    """All tallest groups one size wider, if the idle ranks suffice."""
    tallest = max(group.height for group in batch)
    peaks = [group for group in batch if group.height == tallest]
    if any(group.size + 1 == len(problem.sizes) for group in peaks):
        return None
    wider = [problem.group(group.size + 1, group.items) for group in peaks]
    growth = sum(problem.sizes[group.size + 1] - problem.sizes[group.size] for group in peaks)
    if growth > free or any(group.room < 0 for group in wider):
        return None
    return [group for group in batch if group.height != tallest] + wider


def _merged(problem: Problem, batch: MicroBatch, free: int) -> MicroBatch | None:
    """Groups of together C - c ranks in one group of C ranks that could not do with C / 2, for the least price.

    c is the lowest bit of the number of idle ranks: the sizes are powers of two, so some such c fits first.
    """
    gain = free & -free
    tallest = max(group.height for group in batch)
    for size, width in enumerate(problem.sizes):
        if width < 4 * gain or width & (width - 1) or width > problem.world_size:
            continue
        pool = [group for group in batch if problem.sizes[group.size] <= width - gain]
        pool.sort(key=lambda group: (-group.height, sum([problem.length[i] for i in group.items])))
        best: tuple[float, list[Pack], Pack] | None = None
        for start in range(min(len(pool), TRIES)):
            parts = _of_total(problem, pool[start:], width - gain)
            if parts is None:
                continue
            whole = problem.group(size, [i for group in parts for i in group.items])
            if whole.room < 0 or 2 * whole.height <= tallest:
                continue
            price = sum(problem.price(size, i) - problem.price(part.size, i) for part in parts for i in part.items)
            if best is None or price < best[0]:
                best = price, parts, whole
        if best is not None:
            used = set(map(id, best[1]))
            return [group for group in batch if id(group) not in used] + [best[2]]
    return None


def _of_total(problem: Problem, pool: list[Pack], ranks: int) -> list[Pack] | None:
    """The first groups of the pool, in its order, that have exactly so many ranks."""
    parts = []
    for group in pool:
        if problem.sizes[group.size] <= ranks:
            parts.append(group)
            ranks -= problem.sizes[group.size]
            if not ranks:
                return parts
    return None


def whole_groups(problem: Problem, items: list[int]) -> list[MicroBatch]:
    """The sequences in as few groups of all W ranks as first fit makes of them, one per micro-batch."""
    size = len(problem.sizes) - 1
    groups: list[Pack] = []
    for i in items:
        units = problem.units(size, i)
        group = next((group for group in groups if group.room >= units), None)
        if group is None:
            groups.append(problem.group(size, [i]))
        else:
            group.items.append(i)
            group.room -= units
            group.height += problem.work[i] / problem.sizes[size]
    return [[group] for group in groups]
