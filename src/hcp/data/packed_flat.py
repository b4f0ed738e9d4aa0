"""Some packed rows as flat arrays, and what is known of them. Needs numpy, the extra [data]."""

from __future__ import annotations

from typing import Any, NamedTuple

from hcp.core.errors import HcpError
from hcp.data.packed_row import PackedBatch, check_row


def numpy_for(name: str) -> Any:
    """numpy; raises HcpError, which names the extra, where it is missing."""
    try:
        import numpy
    except ImportError:
        raise HcpError(f"{name}: this needs numpy; install it: pip install 'megatron-hcp[data]'") from None
    return numpy


class Lists(NamedTuple):
    """One list for each row."""

    values: Any
    """The numbers of all lists: what an array of indices finds in it, it gives as an array."""
    begins: Any
    """(rows,) int64: the index of each list's first number."""
    counts: Any
    """(rows,) int64: how many numbers each list has."""


class FlatRows:
    """Rows that were read together.

    Args:
        numpy: the module.
        name: the file, for messages.
        first: the number of the first row.
        tokens: of each row, `input_ids`.
        mask: of each row, `loss_mask`.
        places: of each row, `seq_start_id`; its values are an array, list after list.

    Raises:
        HcpError: the lists of a row do not fit each other.
    """

    def __init__(self, numpy: Any, name: str, first: int, tokens: Lists, mask: Lists, places: Lists) -> None:
        self.numpy, self.first = numpy, first
        self.tokens, self.mask = tokens.values, mask.values
        counts, at = places.counts, numpy.concatenate([[0], numpy.cumsum(places.counts)])
        row_of = numpy.repeat(numpy.arange(len(counts)), counts)
        starts = places.values.astype(numpy.int64)
        inside = ((starts >= 0) & (starts < tokens.counts[row_of])).all()
        starts += tokens.begins[row_of]
        # Each sequence ends where the next one starts, the last one of a row where the row ends.
        ends, filled = numpy.append(starts[1:], 0), counts > 0
        ends[at[1:][filled] - 1] = (tokens.begins + tokens.counts)[filled]
        whole = inside and filled.all() and (tokens.counts == mask.counts).all() and (ends - starts >= 2).all()
        if not whole or (places.values[at[:-1]] != 0).any():
            for row in range(len(counts)):
                held = places.values[at[row] : at[row + 1]].tolist()
                check_row(int(tokens.counts[row]), int(mask.counts[row]), held, f"{name}: row {first + row}")
        self.starts, self.ends, self.row_of, self.at, self.counts = starts, ends, row_of, at, counts
        self.to_mask = (mask.begins - tokens.begins)[row_of]

    def summary(self) -> PackedBatch:
        numpy = self.numpy
        lengths = self.ends - self.starts - 1
        widths = numpy.add.reduceat(lengths, self.at[:-1]) if len(lengths) else lengths
        last = self.tokens[self.ends - 1]
        return PackedBatch(
            len(self.counts),
            _counted(numpy, lengths),
            _counted(numpy, widths),
            int(self.counts.max(initial=0)),
            _counted(numpy, last),
            self._masked(last),
            lambda length: self._place(lengths, length),
        )

    def _masked(self, last: Any) -> dict[Any, int]:
        """Counted padding by its token: from the end of each sequence on, as long as the token is the same."""
        numpy = self.numpy
        at, start, to_mask = self.ends - 2, self.starts, self.to_mask
        found = []
        while len(at):
            same = (at >= start) & (self.tokens[at] == last)
            at, start, last, to_mask = at[same], start[same], last[same], to_mask[same]
            found.append(last[self.mask[at + to_mask] != 0])
            at = at - 1
        return _counted(numpy, numpy.concatenate(found)) if found else {}

    def _place(self, lengths: Any, length: int) -> str:
        sequence = int(self.numpy.flatnonzero(lengths == length)[0])
        row = int(self.row_of[sequence])
        return f"row {self.first + row}, sequence {sequence - int(self.at[row])}"


def _counted(numpy: Any, values: Any) -> dict[Any, int]:
    found, counts = numpy.unique(values, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist()))
