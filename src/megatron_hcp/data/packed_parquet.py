"""Reads Megatron-Bridge's packed rows from a parquet file. Needs pyarrow and numpy, the extra [data]."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, BinaryIO

from megatron_hcp.data.packed_flat import FlatRows, Lists, numpy_for, summary
from megatron_hcp.data.packed_row import PackedBatch
from megatron_hcp.data.parquet import arrow_errors, check_column_size, opened, rows_at_a_time
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible

COLUMNS = ("input_ids", "loss_mask", "seq_start_id")
_PARTS = 16
"""Parts whose rows are counted together, for speed."""


def is_packed(table: Any) -> bool:
    """Whether the file has the columns of packed rows."""
    return set(COLUMNS) <= set(table.schema_arrow.names)


def packed_rows(file: BinaryIO, name: str, progress: Callable[[int], None]) -> Iterator[PackedBatch]:
    """The rows, some at a time; `progress` is called with the reader's position.

    Raises:
        HcpError: pyarrow or numpy is missing, or a column contains anything other than lists of whole numbers.
    """
    numpy = numpy_for(name)
    table = opened(file, name)
    with arrow_errors(name):
        for column in COLUMNS:  # from the schema and the footer: reading a wrong column can take all memory
            _check_type(table.schema_arrow.field(column).type, name, column)
            check_column_size(table, name, column)
        parts = _parts(numpy, table, name)
        while some := list(islice(parts, _PARTS)):
            yield summary(numpy, some)
            progress(file.tell())


def _parts(numpy: Any, table: Any, name: str) -> Iterator[FlatRows]:
    first = 0
    for batch in table.iter_batches(rows_at_a_time(table), columns=list(COLUMNS), use_threads=False):
        yield FlatRows(numpy, name, first, *(_flat(batch.column(column), name, column) for column in COLUMNS))
        first += batch.num_rows
        del batch  # before the next one is read


def _check_type(kind: Any, name: str, called: str) -> None:
    import pyarrow

    types = pyarrow.types
    if not (types.is_list(kind) or types.is_large_list(kind)) or not (
        types.is_integer(kind.value_type) or types.is_boolean(kind.value_type)
    ):
        raise HcpError(
            f"{name}: column {called} holds {visible(str(kind))[:60]}",
            wanted="lists of whole numbers",
            do="pack the data again",
        )


def _flat(column: Any, name: str, called: str) -> Lists:
    """A column of lists."""
    if column.null_count or column.values.null_count:
        raise HcpError(f"{name}: column {called} has null values", wanted="a list of numbers in each row")
    offsets = column.offsets.to_numpy()
    values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    begins = offsets.astype("int64") - offsets[0]
    return Lists(values.to_numpy(zero_copy_only=False), begins[:-1], begins[1:] - begins[:-1])
