"""verl with pull request #5869: micro-batches of balanced work, each split into groups of one size."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

from megatron_hcp.dcp.published.open_group import Batches
from megatron_hcp.dcp.split import split_pr5869


def even_micro_batches(lengths: Sequence[int], world_size: int, max_seqlen: int) -> Batches:
    """As many micro-batches as the tokens need at W * M each, with balanced work, each split as by `split_pr5869`.

    As in the original, M limits neither the tokens of a micro-batch nor those of a rank. The work is verl's 24576 s +
    s**2, whatever the model.

    Raises HcpError as `split_pr5869` does. Source: verl at ed30917fd, verl/utils/seqlen_balancing.py,
    rearrange_micro_batches.
    """
    count = min(len(lengths), -(-sum(lengths) // (max_seqlen * world_size)))
    batches: Batches = []
    for part in even_parts([24576 * length + length * length for length in lengths], max(1, count)):
        split = split_pr5869([lengths[i] for i in part], world_size, max_seqlen)
        batches.append([(split.local_cp_size, [part[k] for k in own]) for own in split.samples])
    return batches


_Part = tuple[int, int, list[tuple[int, int]]]
"""Its sum, how many items it has, and (index, value) of each: parts are compared in this order."""


def even_parts(values: Sequence[int], count: int) -> list[list[int]]:
    """Indices of the values in `count` parts of about the same sum, by largest differencing (Karmarkar-Karp).

    Each value starts as its own division into `count` parts. The two divisions with the largest spread are merged, the
    largest part of one with the smallest of the other, until one is left. Ties are broken as in verl. Source: verl,
    verl/utils/seqlen_balancing.py, karmarkar_karp and get_seqlen_balanced_partitions.

    >>> even_parts([8, 7, 6, 5, 4], 2)
    [[1, 3, 4], [0, 2]]
    """
    heap = [_Division([(value, 1, [(i, value)]), *[(0, 0, [])] * (count - 1)]) for value, i in _ascending(values)]
    heapify(heap)
    while len(heap) > 1:
        first = heappop(heap)
        heapreplace(heap, first.merged(heap[0]))
    return [sorted(i for i, _ in items) for _, _, items in heap[0].parts]


def _ascending(values: Sequence[int]) -> list[tuple[int, int]]:
    return sorted((value, i) for i, value in enumerate(values))


class _Division:
    """Parts, the largest first; the division of the widest spread comes first in a heap."""

    __slots__ = ("parts", "spread")

    def __init__(self, parts: list[_Part]) -> None:
        self.parts = sorted(parts, reverse=True)
        self.spread = self.parts[0][0] - self.parts[-1][0]

    def merged(self, other: _Division) -> _Division:
        return _Division(
            [
                (mine[0] + theirs[0], mine[1] + theirs[1], mine[2] + theirs[2])
                for mine, theirs in zip(self.parts, reversed(other.parts))
            ]
        )

    def __lt__(self, other: _Division) -> bool:
        if self.spread != other.spread:
            return self.spread > other.spread
        return self.parts[0] > other.parts[0]
