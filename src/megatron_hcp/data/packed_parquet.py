"""Reads Megatron-Bridge's packed rows from a parquet file. Needs pyarrow and numpy, the extra [data]."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, BinaryIO

from megatron_hcp.data.packed_flat import FlatRows, Lists, numpy_for, summary
from megatron_hcp.data.packed_row import PackedBatch
from megatron_hcp.data.parquet import arrow_errors, check_column_size, opened
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible

COLUMNS = ("input_ids", "loss_mask", "seq_start_id")
_PARTS = 16
"""Parts whose rows are counted together, for speed."""
_TOKENS = 1 << 16
"""How much is read at a time, at least one row; more takes memory and is no faster."""


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
        for column in COLUMNS:
            check_column_size(table, name, column)
        parts = _parts(numpy, table, name)
        while some := list(islice(parts, _PARTS)):
            yield summary(numpy, some)
            progress(file.tell())


def _parts(numpy: Any, table: Any, name: str) -> Iterator[FlatRows]:
    first = 0
    for batch in table.iter_batches(_rows(table), columns=list(COLUMNS), use_threads=False):
        yield FlatRows(numpy, name, first, *(_flat(batch.column(column), name, column) for column in COLUMNS))
        first += batch.num_rows
        del batch  # before the next one is read


def _rows(table: Any) -> int:
    """How many rows to read at a time, judged by their length in the first row group."""
    if not table.metadata.num_row_groups:
        return 1
    group = table.metadata.row_group(0)
    tokens = max(int(group.column(i).num_values) for i in range(group.num_columns))
    return max(1, min(_TOKENS, _TOKENS * int(group.num_rows) // max(1, tokens)))


def _flat(column: Any, name: str, called: str) -> Lists:
    """A column of lists."""
    import pyarrow

    types = pyarrow.types
    if not (types.is_list(column.type) or types.is_large_list(column.type)) or not (
        types.is_integer(column.type.value_type) or types.is_boolean(column.type.value_type)
    ):
        raise HcpError(
            f"{name}: column {called} holds {visible(str(column.type))[:60]}",
            wanted="lists of whole numbers",
            do="pack the data again",
        )
    if column.null_count or column.values.null_count:
        raise HcpError(f"{name}: column {called} has null values", wanted="a list of numbers in each row")
    offsets = column.offsets.to_numpy()
    values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    begins = offsets.astype("int64") - offsets[0]
    return Lists(values.to_numpy(zero_copy_only=False), begins[:-1], begins[1:] - begins[:-1])
