"""`range` over several axes: ranks, or first ranks of groups, without enumerating them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import overload

Dims = tuple[tuple[int, int], ...]
"""(size, stride) of each axis, fastest first."""


class Ranks(Sequence[int]):
    """`range` over several axes: `start` plus every sum of multiples of the strides, first axis fastest.

    Evaluated lazily.

    >>> list(Ranks(1, ((2, 2), (2, 8))))
    [1, 3, 9, 11]
    """

    __slots__ = ("dims", "start")

    def __init__(self, start: int, dims: Dims) -> None:
        self.start = start
        self.dims = dims

    def __len__(self) -> int:
        return prod(size for size, _ in self.dims)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        left = range(len(self))[index]
        rank = self.start
        for size, stride in self.dims:
            left, coordinate = divmod(left, size)
            rank += coordinate * stride
        return rank

    def __iter__(self) -> Iterator[int]:
        if not self.dims:
            return iter((self.start,))
        *slower, (size, stride) = reversed(self.dims)
        starts: Iterable[int] = Ranks(self.start, tuple(reversed(slower))) if slower else (self.start,)
        return (rank for start in starts for rank in range(start, start + size * stride, stride))

    def __repr__(self) -> str:
        return f"Ranks({self.start}, {self.dims})"


def ranks_from(start: int, dims: Dims) -> Sequence[int]:
    """The ranks start + (all multiples along `dims`), as a `range` where one axis is enough.

    >>> ranks_from(3, ((4, 2),))
    range(3, 11, 2)
    """
    if not dims:
        return range(start, start + 1)
    if len(dims) == 1:
        size, stride = dims[0]
        return range(start, start + size * stride, stride)
    return Ranks(start, dims)


def merge_dims(dims: Iterable[tuple[int, int]]) -> Dims:
    """The same ranks in the same order with as few axes as possible: size 1 dropped, neighbours joined.

    >>> merge_dims([(2, 1), (4, 2), (1, 8), (3, 16)])
    ((8, 1), (3, 16))
    """
    merged: list[tuple[int, int]] = []
    for size, stride in dims:
        if size == 1:
            continue
        if merged and merged[-1][0] * merged[-1][1] == stride:
            merged[-1] = (merged[-1][0] * size, merged[-1][1])
        else:
            merged.append((size, stride))
    return tuple(merged)
