"""Reads lengths from a column of a parquet file. Needs pyarrow, the extra [data]."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from megatron_hcp.data.packed_row import MAX_ROW
from megatron_hcp.data.sampling import MAX_LENGTH, taken
from megatron_hcp.data.text import GUESSES
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible

MAGIC = b"PAR1"
MAX_COLUMN_BYTES = 2_000_000_000
"""Maximum decompressed size of one column in one row group, which is held at a time."""
MAX_COLUMN_VALUES = 1 << 28
"""Maximum numbers of one column in one row group: the numbers of a row are held at a time, and a few bytes can repeat
one number a billion times."""
_MAX_METADATA = 100_000_000
_TOKENS = 1 << 16
"""How much is read at a time, at least one row; more takes memory and is no faster."""
_BUFFER = 1 << 18


def read_parquet(file: BinaryIO, name: str, field: str | None = None, take: int | None = None) -> list[int]:
    """The length of each row: the column's number, or the number of items in its list.

    Raises:
        HcpError: pyarrow is missing, the file is not parquet, or the column contains text or anything but tokens.
    """
    table = opened(file, name)
    import pyarrow

    with arrow_errors(name):
        column = _column(pyarrow, table, name, field)
        wanted = taken(table.metadata.num_rows, take, name)
        return _lengths(pyarrow, table, name, column, wanted)


def opened(file: BinaryIO, name: str) -> Any:
    """pyarrow's reader of the file, whose footer is sound.

    Raises:
        HcpError: pyarrow is missing, or the file is not a complete parquet file.
    """
    start, footer = file.tell(), _FooterOnly(file)
    _check_footer(_reader(footer, name), footer, name)
    file.seek(start)
    return _reader(file, name)


def _reader(file: Any, name: str) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise HcpError(f"{name}: this needs pyarrow", do="install it: pip install '.[data]' in a checkout") from None
    with arrow_errors(name):
        return parquet.ParquetFile(
            file,
            pre_buffer=False,  # which holds whole row groups
            buffer_size=_BUFFER,  # without which a group's column is read whole
            thrift_string_size_limit=_MAX_METADATA,
            thrift_container_size_limit=_MAX_METADATA // 100,
        )


class _FooterOnly(io.RawIOBase):
    """A file of which pyarrow can read the footer, as it opens it, and no page afterwards."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.is_read = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = 0) -> int:
        return self.file.seek(place, whence)

    def tell(self) -> int:
        return self.file.tell()

    def read(self, size: int = -1) -> bytes:
        if self.is_read:
            raise _PageError
        return self.file.read(size)


class _PageError(OSError):
    """The footer was sound: pyarrow went on to a page."""


def _check_footer(table: Any, file: _FooterOnly, name: str) -> None:
    """Raises HcpError if pyarrow finds a fault in what the footer says of a column.

    Asked for a column's sizes, pyarrow ends the process where it finds one; as it begins to read, it raises an error.
    """
    file.is_read = True
    for group in range(table.metadata.num_row_groups):
        with arrow_errors(name), suppress(_PageError):
            next(table.iter_batches(1, row_groups=[group], use_threads=False), None)


@contextmanager
def arrow_errors(name: str) -> Iterator[None]:
    """Turns pyarrow's errors into one line."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = visible(str(error).split("\n")[0])[:120]
        raise HcpError(f"{name}: not a readable parquet file ({reason})", wanted="a complete one") from None


def _column(pyarrow: Any, table: Any, name: str, field: str | None) -> str:
    schema = table.schema_arrow
    found = field if field is not None else next((one for one in GUESSES if one in schema.names), None)
    if found is None or found not in schema.names:
        columns = ", ".join(visible(one)[:40] for one in schema.names[:12]) or "none"
        missing = (
            f"no column {visible(field)!r:.60}" if field is not None else f"none of the columns {', '.join(GUESSES)}"
        )
        raise HcpError(
            f"{name}: has {missing}; it has {columns}", do="name the one with lengths or tokens with --field"
        )
    kind = schema.field(found).type
    types = pyarrow.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not types.is_integer(kind.value_type if is_list else kind):
        raise HcpError(
            f"{name}: column {visible(found)[:40]!r} holds {visible(str(kind))[:60]}",
            wanted="lengths, or lists of token ids",
            do="tokenize the text first, and store its length",
        )
    return found


def each_length(file: BinaryIO, name: str, field: str | None = None) -> Iterator[int]:
    """The length of each row, one at a time, for any number of rows.

    Raises:
        HcpError: as `read_parquet`.
    """
    table = opened(file, name)
    import pyarrow

    with arrow_errors(name):
        column = _column(pyarrow, table, name, field)
        check_column_size(table, name, column)
        for row, value in enumerate(_values(pyarrow, table, column)):
            yield _checked(value, name, row, column)


def _lengths(pyarrow: Any, table: Any, name: str, column: str, wanted: range | list[int]) -> list[int]:
    check_column_size(table, name, column)
    lengths: list[int] = []
    rows = iter(wanted)
    following = next(rows, None)
    for row, value in enumerate(_values(pyarrow, table, column)):
        if row == following:
            lengths.append(_checked(value, name, row, column))
            following = next(rows, None)
    if not lengths:
        raise HcpError(f"{name}: found no sequence", wanted="one row per sequence")
    return lengths


def _values(pyarrow: Any, table: Any, column: str) -> Iterator[int | None]:
    """The column's numbers, or the lengths of its lists."""
    from pyarrow import compute

    for batch in table.iter_batches(rows_at_a_time(table), columns=[column], use_threads=False):
        values = batch.column(0)
        if not pyarrow.types.is_integer(values.type):
            values = compute.list_value_length(values)
        yield from values.to_pylist()


def _checked(value: int | None, name: str, row: int, column: str) -> int:
    if value is None or not 1 <= value <= MAX_LENGTH:
        raise HcpError(
            f"{name}: row {row} of {visible(column)[:40]!r} has length {value}", wanted=f"from 1 to {MAX_LENGTH:,}"
        )
    return value


def rows_at_a_time(table: Any) -> int:
    """How many rows to read at a time, judged by the numbers in the densest row group."""
    groups = [table.metadata.row_group(group) for group in range(table.metadata.num_row_groups)]
    per_row = max((_values_of(group) / max(1, int(group.num_rows)) for group in groups), default=1)
    return max(1, min(_TOKENS, int(_TOKENS / max(1, per_row))))


def _values_of(group: Any) -> int:
    return max((int(group.column(number).num_values) for number in range(group.num_columns)), default=0)


def check_column_size(table: Any, name: str, column: str) -> None:
    """Raises HcpError if a row group, or its rows on average, hold more of the column than fits in memory."""
    metadata = table.metadata
    for group in range(metadata.num_row_groups):
        parts = metadata.row_group(group)
        own = [parts.column(number) for number in range(parts.num_columns)]
        own = [part for part in own if part.path_in_schema.partition(".")[0] == column]
        size, values = (sum(getattr(part, what) for part in own) for what in ("total_uncompressed_size", "num_values"))
        most = min(MAX_COLUMN_VALUES, MAX_ROW * parts.num_rows)
        for found, limit, what in (
            (size, MAX_COLUMN_BYTES, "bytes"),
            (values, most, f"numbers in {parts.num_rows:,} rows"),
        ):
            if found > limit:
                raise HcpError(
                    f"{name}: row group {group} has {found:,} {what} in column {column}, more than {limit:,}",
                    do="write smaller row groups, or a column with only the lengths",
                )
