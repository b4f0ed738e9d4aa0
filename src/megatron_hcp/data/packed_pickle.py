"""Reads Megatron-Bridge's packed rows from an `.npy` file without unpickling it. Needs numpy, the extra [data].

numpy stores an array of dictionaries as a pickle, and Python's own unpickler imports and calls whatever a pickle names.
This reader knows only the operations with which dictionaries of lists of numbers are written: it creates no objects
and imports nothing. It holds some megabytes of rows at a time.
"""

from __future__ import annotations

import ast
import pickletools
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from megatron_hcp.data.packed_flat import FlatRows, Lists, numpy_for, summary
from megatron_hcp.data.packed_row import MAX_ROW, PackedBatch
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible

if TYPE_CHECKING:
    from megatron_hcp.data.pickle_operations import Operations

MAGIC = b"\x93NUMPY"
_CHUNK = 1 << 20
_MOST_HEADER = 10_000
_MOST_MEMO = 64
_FIELDS = ("input_ids", "loss_mask", "seq_start_id")
_HEAD = frozenset(
    "PROTO FRAME GLOBAL STACK_GLOBAL SHORT_BINUNICODE BINUNICODE MEMOIZE BINPUT LONG_BINPUT BINGET BININT BININT1 "
    "BININT2 TUPLE TUPLE1 TUPLE2 TUPLE3 REDUCE MARK SHORT_BINBYTES BINBYTES NEWTRUE NEWFALSE NONE BUILD".split()
)
"""The operations with which numpy describes an array of objects, by their names in pickletools."""
_WORDS = frozenset("numpy.core.multiarray numpy._core.multiarray _reconstruct numpy ndarray dtype O8 |".split())
"""The strings in it; none of them is looked up."""

_FOREIGN, _ITEM, _AROUND, _NOTE, _KEY, _LIST, _ROW, _ROW_END, _TAIL = range(9)
_KINDS = bytearray(256)
for _codes, _kind in (
    (b"KMJG\x88\x89", _ITEM), (b"(ea", _AROUND), (b"\x94\x95qr", _NOTE), (b"hj\x8cX", _KEY), (b"]", _LIST),
    (b"}", _ROW), (b"u", _ROW_END), (b"tb.", _TAIL),
):  # fmt: skip
    for _code in _codes:
        _KINDS[_code] = _kind
_PATTERN = (_ROW, _KEY, _LIST, _KEY, _LIST, _KEY, _LIST, _ROW_END)
"""The operations of a row besides items and marks."""


class Header(NamedTuple):
    """The header before an array's data."""

    is_objects: bool
    shape: tuple[int, ...]
    kind: str


def read_header(file: BinaryIO, name: str) -> Header:
    """The array's header; afterwards the file is positioned at the data.

    Raises:
        HcpError: the header is truncated or not numpy's.
    """
    start = file.read(len(MAGIC) + 2)
    width = 2 if start[len(MAGIC) : len(MAGIC) + 1] == b"\x01" else 4
    size = int.from_bytes(file.read(width), "little")
    text = file.read(size) if size <= _MOST_HEADER else b""
    try:
        fields = ast.literal_eval(text.decode("latin-1").strip())
        kind, shape = str(fields["descr"]), tuple(int(part) for part in fields["shape"])
        if not all(0 <= part < 1 << 63 for part in shape):
            raise ValueError("no size of an array")
    except (ValueError, SyntaxError, KeyError, TypeError, OverflowError, MemoryError, RecursionError):
        raise HcpError(
            f"{name}: a broken .npy file", wanted="Megatron-Bridge's packed rows", do="write it again"
        ) from None
    return Header(kind == "|O", shape, kind)


def packed_rows(file: BinaryIO, name: str, progress: Callable[[int], None]) -> Iterator[PackedBatch]:
    """The rows, some at a time; `progress` is called with the reader's position.

    Raises:
        HcpError: numpy is missing, the array contains anything else, or the file is truncated.
    """
    numpy_for(name)
    header = read_header(file, name)
    if not header.is_objects or len(header.shape) != 1:
        raise HcpError(
            f"{name}: an array {visible(header.kind)[:20]} of shape {str(header.shape)[:40]}",
            wanted="Megatron-Bridge's packed rows, a list of dictionaries with input_ids, loss_mask and seq_start_id",
        )
    reader = _Reader(name)
    data = reader.skip_head(file.read(_CHUNK))
    more = True
    while more:
        read = file.read(max(_CHUNK, len(data)))
        progress(file.tell())
        data += read
        batch, data, more = reader.rows(data, is_last=not read)
        if batch is not None:
            yield batch
    if reader.count != header.shape[0]:
        raise HcpError(
            f"{name}: {reader.count:,} rows, and its header says {header.shape[0]:,}",
            wanted="all of them",
            do="write the file again",
        )


class _Reader:
    def __init__(self, name: str) -> None:
        import numpy

        self.numpy, self.name = numpy, name
        self.kinds = numpy.frombuffer(bytes(_KINDS), numpy.uint8)
        self.count = 0
        """Rows read so far."""
        self.memo = 0
        """Memo entries made without a number."""
        self.texts: dict[int, str] = {}
        """Field names by their number in the memo."""

    def skip_head(self, data: bytes) -> bytes:
        """The data after numpy's preamble and the start of the list of the array's items."""
        try:
            for operation, operand, at in pickletools.genops(BytesIO(data[:_MOST_HEADER])):
                if operation.name == "EMPTY_LIST":
                    return data[(at or 0) + 1 :]
                if operation.name not in _HEAD:
                    raise self.foreign(ord(operation.code))
                if isinstance(operand, str) and not _WORDS.issuperset(operand.split(" ")):
                    raise self.broken(f"it names {visible(operand)[:40]!r}")
                self.memo += operation.name == "MEMOIZE"
        except (ValueError, IndexError, UnicodeError):
            pass
        raise self.broken("it is truncated")

    def rows(self, data: bytes, is_last: bool) -> tuple[PackedBatch | None, bytes, bool]:
        """The whole rows at the start of the data, the rest, and whether more may follow."""
        from megatron_hcp.data.pickle_operations import Operations

        numpy = self.numpy
        found = Operations(data)
        kinds = self.kinds[found.codes]
        stops = numpy.flatnonzero(found.codes == ord("."))
        ended = len(stops) > 0
        if ended:
            kinds = kinds[: stops[0]]
        ends = numpy.flatnonzero(kinds == _ROW_END)
        size = int(ends[-1]) + 1 if len(ends) else 0
        if not size and not ended and (is_last or len(data) > 5 * MAX_ROW):
            raise self.broken("it is truncated" if is_last else f"a row of more than {5 * MAX_ROW:,} bytes")
        tail = kinds[size:]
        odd = numpy.flatnonzero(ended & (tail != _AROUND) & (tail != _NOTE) & (tail != _TAIL))
        if len(odd):
            raise self.foreign(int(found.codes[size + int(odd[0])]))
        if not size:
            return None, data, not ended
        batch = self.batch(found, kinds[:size])
        return batch, data[int(found.at[size - 1]) + 1 :], not ended

    def batch(self, found: Operations, kinds: Any) -> PackedBatch:
        """What is known about the rows that some operations write."""
        numpy = self.numpy
        is_item = kinds == _ITEM
        frame = numpy.flatnonzero(~is_item & (kinds != _AROUND) & (kinds != _NOTE))
        wrong = numpy.flatnonzero(kinds[frame] != numpy.resize(_PATTERN, len(frame)))
        if len(wrong) or len(frame) % len(_PATTERN):
            at = int(wrong[0]) if len(wrong) else -1
            if kinds[frame[at]] in (_FOREIGN, _TAIL):
                raise self.foreign(int(found.codes[frame[at]]))
            raise self.broken(f"row {self.count + at // len(_PATTERN)} has other parts than {', '.join(_FIELDS)}")
        frame = frame.reshape(-1, len(_PATTERN))
        names = self.names(found, kinds, frame[:, 1:7:2])
        items = numpy.flatnonzero(is_item)
        places = numpy.searchsorted(items, frame)
        begins = numpy.take_along_axis(places[:, 2:7:2], names, 1)
        counts = numpy.take_along_axis(places[:, 3:8:2], names, 1) - begins
        if counts.sum() != len(items):
            raise self.broken("numbers outside of lists")
        numbers = _Numbers(found, items)
        tokens, mask, starts = (Lists(numbers, begins[:, i], counts[:, i]) for i in range(3))
        # The lists of places one after another, without the bytes between them.
        shifts = starts.begins - numpy.cumsum(starts.counts) + starts.counts
        listed = items[numpy.arange(starts.counts.sum()) + numpy.repeat(shifts, starts.counts)]
        if not numpy.isin(found.codes[listed], list(b"KMJ")).all():
            raise self.broken("a place in seq_start_id that is not a whole number")
        values = found.operands(listed).astype(numpy.int32)  # four bytes signed, or fewer unsigned
        rows = FlatRows(numpy, self.name, self.count, tokens, mask, starts._replace(values=values))
        self.count += len(frame)
        self.memo += int((found.codes[: len(kinds)] == 0x94).sum())
        return summary(numpy, [rows])

    def names(self, found: Operations, kinds: Any, keys: Any) -> Any:
        """(rows, 3) int64: the places of `_FIELDS` among the lists of each row."""
        numpy = self.numpy
        rows = [[self.key(found, key) for key in row] for row in keys.tolist()]
        for number, row in enumerate(rows):
            if sorted(row) != sorted(_FIELDS):
                held = ", ".join(sorted(filter(None, row))) or "nothing"
                raise self.broken(f"row {self.count + number} is a dictionary with {held}")
        return numpy.array([[row.index(field) for field in _FIELDS] for row in rows])

    def key(self, found: Operations, index: int) -> str:
        """The string at an operation, or the one that it fetches from the memo."""
        code, at = int(found.codes[index]), int(found.at[index])
        if code in b"hj":
            return self.texts.get(int(found.operands([index])[0]), "")
        start = 2 if code == 0x8C else 5
        end = int(found.at[index + 1]) if index + 1 < len(found.at) else at
        text = bytes(found.data[at + start : end]).decode("latin-1")
        if text not in _FIELDS or len(text) != int.from_bytes(bytes(found.data[at + 1 : at + start]), "little"):
            raise self.broken(f"it names {visible(text)[:40]!r}")
        note = int(found.codes[index + 1])
        if note in b"qr":
            number = int(found.operands([index + 1])[0])
        else:
            number = self.memo + int((found.codes[: index + 1] == 0x94).sum())
        if len(self.texts) < _MOST_MEMO:
            self.texts[number] = text
        return text

    def foreign(self, code: int) -> HcpError:
        return self.broken(f"the operation {bytes([code])!r}, which rows of numbers do not need there")

    def broken(self, what: str) -> HcpError:
        return HcpError(
            f"{self.name}: not packed rows that can be read without unpickling ({what})",
            wanted="what Megatron-Bridge writes: lists of numbers in dictionaries",
            do="pack to parquet",
        )


class _Numbers:
    """The numbers that operations write, read on demand."""

    def __init__(self, found: Operations, items: Any) -> None:
        self.found, self.items = found, items

    def __getitem__(self, indices: Any) -> Any:
        return self.found.operands(self.items[indices])
