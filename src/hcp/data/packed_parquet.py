"""Megatron-Bridge's packed rows out of a parquet file. Needs pyarrow and numpy, the extra [data]."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from hcp.core.errors import HcpError
from hcp.core.visible import visible
from hcp.data.packed_row import PackedBatch, check_row
from hcp.data.parquet import arrow_errors, check_column_size, opened

COLUMNS = ("input_ids", "loss_mask", "seq_start_id")
_ROWS = 32
"""Read at a time: rows of 128 K tokens take some 32 MB."""


def is_packed(table: Any) -> bool:
    """Whether the file has the columns of packed rows."""
    return set(COLUMNS) <= set(table.schema_arrow.names)


def packed_rows(file: BinaryIO, name: str, progress: Callable[[int], None]) -> Iterator[PackedBatch]:
    """The rows, some at a time; `progress` hears how far the reader is.

    Raises:
        HcpError: pyarrow or numpy is missing, or a column holds anything else than lists of whole numbers.
    """
    numpy = _numpy(name)
    table = opened(file, name)
    first = 0
    with arrow_errors(name):
        for column in COLUMNS:
            check_column_size(table, name, column)
        for batch in table.iter_batches(_ROWS, columns=list(COLUMNS), use_threads=False):
            columns = [_flat(numpy, batch.column(column), name, column) for column in COLUMNS]
            yield _FlatRows(numpy, name, first, *columns).summary()
            first += batch.num_rows
            progress(file.tell())


def _flat(numpy: Any, column: Any, name: str, called: str) -> tuple[Any, Any]:
    """(values, offsets) of a column of lists."""
    import pyarrow

    types = pyarrow.types
    if not (types.is_list(column.type) or types.is_large_list(column.type)) or not (
        types.is_integer(column.type.value_type) or types.is_boolean(column.type.value_type)
    ):
        raise HcpError(
            f"{name}: column {called} holds {visible(str(column.type))[:60]}; wanted lists of whole numbers; "
            "pack the data again"
        )
    if column.null_count or column.values.null_count:
        raise HcpError(f"{name}: column {called} has empty places; wanted a list of numbers in each row")
    offsets = column.offsets.to_numpy()
    values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    return values.to_numpy(zero_copy_only=False), offsets - offsets[0]


class _FlatRows:
    """Some rows as flat arrays."""

    def __init__(self, numpy: Any, name: str, first: int, tokens: Any, mask: Any, starts: Any) -> None:
        self.numpy, self.name, self.first = numpy, name, first
        (self.tokens, self.row_at), (self.mask, mask_at), (places, places_at) = tokens, mask, starts
        counts = numpy.diff(places_at)
        widths = numpy.diff(self.row_at)
        self.row_of = numpy.repeat(numpy.arange(len(counts)), counts)
        self.starts = places.astype(numpy.int64) + self.row_at[:-1][self.row_of]
        # Each sequence ends where the next one starts, the last one of a row where the row ends.
        self.ends = numpy.append(self.starts[1:], 0)
        self.ends[places_at[1:][counts > 0] - 1] = self.row_at[1:][counts > 0]
        whole = (counts > 0).all() and (widths == numpy.diff(mask_at)).all() and (self.ends - self.starts >= 2).all()
        if not whole or (places[places_at[:-1]] != 0).any():
            for row in range(len(counts)):
                held = places[places_at[row] : places_at[row + 1]].tolist()
                check_row(int(widths[row]), int(mask_at[row + 1] - mask_at[row]), held, f"{name}: row {first + row}")
        self.counts, self.places_at = counts, places_at

    def summary(self) -> PackedBatch:
        numpy = self.numpy
        lengths = self.ends - self.starts - 1
        widths = numpy.add.reduceat(lengths, self.places_at[:-1]) if len(lengths) else lengths
        last = self.tokens[self.ends - 1] if len(self.ends) else self.tokens[:0]
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
        at, start = self.ends - 2, self.starts
        found = []
        while len(at):
            same = (at >= start) & (self.tokens[at] == last)
            at, start, last = at[same], start[same], last[same]
            found.append(last[self.mask[at] != 0])
            at = at - 1
        return _counted(numpy, numpy.concatenate(found)) if found else {}

    def _place(self, lengths: Any, length: int) -> str:
        sequence = int(self.numpy.flatnonzero(lengths == length)[0])
        row = int(self.row_of[sequence])
        return f"row {self.first + row}, sequence {sequence - int(self.places_at[row])}"


def _counted(numpy: Any, values: Any) -> dict[Any, int]:
    found, counts = numpy.unique(values, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist()))


def _numpy(name: str) -> Any:
    try:
        import numpy
    except ImportError:
        raise HcpError(f"{name}: this needs numpy; install it: pip install 'megatron-hcp[data]'") from None
    return numpy
