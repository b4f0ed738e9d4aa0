"""Packed rows as flat arrays, and what is known about them. Needs numpy, the extra [data]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from megatron_hcp.data.packed_row import PackedBatch, check_row
from megatron_hcp.ground.errors import HcpError


def numpy_for(name: str) -> Any:
    """numpy; raises HcpError, which names the extra, if it is not installed."""
    try:
        import numpy
    except ImportError:
        raise HcpError(f"{name}: this needs numpy", do="install it: pip install '.[data]' in a checkout") from None
    return numpy


_WINDOW = 16
"""Tokens at a sequence's end that are examined together."""


class Lists(NamedTuple):
    """One list per row."""

    values: Any
    """The numbers of all lists; indexed with an array, it returns an array."""
    begins: Any
    """(rows,) int64: the index of each list's first number."""
    counts: Any
    """(rows,) int64: the length of each list."""


class FlatRows:
    """Rows that were read together: what is known about them, without their tokens.

    Args:
        numpy: the module.
        name: the file, for messages.
        first: the number of the first row.
        tokens: of each row, `input_ids`.
        mask: of each row, `loss_mask`.
        places: of each row, `seq_start_id`; its values are an array, list after list.

    Raises:
        HcpError: the lists of a row are inconsistent.
    """

    def __init__(self, numpy: Any, name: str, first: int, tokens: Lists, mask: Lists, places: Lists) -> None:
        counts, until = places.counts, numpy.cumsum(places.counts)
        at = until - counts
        row_of = numpy.arange(len(counts)).repeat(counts)
        starts = places.values.astype(numpy.int64)
        inside = ((starts >= 0) & (starts < tokens.counts[row_of])).all()
        starts += tokens.begins[row_of]
        # Each sequence ends where the next one starts, the last one of a row where the row ends.
        ends, filled = numpy.empty_like(starts), counts > 0
        ends[:-1] = starts[1:]
        ends[until[filled] - 1] = (tokens.begins + tokens.counts)[filled]
        lengths = ends - starts - 1
        whole = inside and filled.all() and (tokens.counts == mask.counts).all() and (lengths >= 1).all()
        if not whole or (places.values[at] != 0).any():
            for row in range(len(counts)):
                held = places.values[at[row] : until[row]].tolist()
                check_row(int(tokens.counts[row]), int(mask.counts[row]), held, f"{name}: row {first + row}")
        self.first, self.row_of, self.at, self.counts, self.lengths = first, row_of, at, counts, lengths
        self.widths = tokens.counts - counts
        self.last = tokens.values[ends - 1]
        self.masked = _masked(
            numpy, starts, ends, self.last, tokens.values, mask.values, (mask.begins - tokens.begins)[row_of]
        )

    def place(self, sequence: int) -> str:
        row = int(self.row_of[sequence])
        return f"row {self.first + row}, sequence {sequence - int(self.at[row])}"


def _masked(numpy: Any, starts: Any, ends: Any, last: Any, tokens: Any, mask: Any, to_mask: Any) -> list[Any]:
    """The padding tokens that are counted: backwards from each sequence's end while the token is the same."""
    back = numpy.arange(_WINDOW)
    starts, ends, last, to_mask = (each[:, None] for each in (starts, ends - 2, last, to_mask))
    found = []
    while len(ends):
        at = numpy.maximum(ends - back, starts)
        same = numpy.logical_and.accumulate((tokens[at] == last) & (ends - back >= starts), axis=1)
        counted = same & (mask[at + to_mask] != 0)
        if counted.any():
            found.append(numpy.broadcast_to(last, counted.shape)[counted])
        on = same[:, -1]
        starts, ends, last, to_mask = starts[on], ends[on] - _WINDOW, last[on], to_mask[on]
    return found


def summary(numpy: Any, parts: Sequence[FlatRows]) -> PackedBatch:
    """What is known about rows that were read in parts, one after another."""
    lengths = numpy.concatenate([part.lengths for part in parts])
    masked = [tokens for part in parts for tokens in part.masked]
    return PackedBatch(
        sum(len(part.counts) for part in parts),
        _counted(numpy, lengths),
        _counted(numpy, numpy.concatenate([part.widths for part in parts])),
        max(int(part.counts.max(initial=0)) for part in parts),
        _counted(numpy, numpy.concatenate([part.last for part in parts])),
        _counted(numpy, numpy.concatenate(masked)) if masked else {},
        lambda length: _place(parts, length),
    )


def _place(parts: Sequence[FlatRows], length: int) -> str:
    """The first sequence of that length."""
    part, found = next((part, found) for part in parts if len(found := (part.lengths == length).nonzero()[0]))
    return part.place(int(found[0]))


def _counted(numpy: Any, values: Any) -> dict[Any, int]:
    found, counts = numpy.unique(values, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist()))
