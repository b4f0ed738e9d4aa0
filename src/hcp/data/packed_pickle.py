"""Megatron-Bridge's packed rows out of an `.npy` file, without unpickling it.

numpy stores an array of dictionaries as a pickle, and Python's own reader makes and calls whatever a pickle names. This
one knows the operations with which dictionaries of lists of numbers are written, and no other. It holds one row.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from hcp.core.errors import HcpError
from hcp.core.visible import visible
from hcp.data.packed_row import MAX_ROW, PackedBatch, Row, batch_of

MAGIC = b"\x93NUMPY"
_CHUNK = 1 << 20
_MOST_HEADER = 10_000
_MOST_MEMO = 64
_ITEM = re.compile(rb"M..|J....|K.|[\x88\x89]|G.{8}", re.DOTALL)
_ITEMS = re.compile(rb"(?:(?:M..)+|(?:J....)+|K.|[\x88\x89]+|G.{8})*", re.DOTALL)
_LONGEST_ITEM = 9
_TRUTH = bytes(int(byte == 0x88) for byte in range(256))
_FIELDS = ("input_ids", "loss_mask", "seq_start_id")
_HEAD = frozenset("numpy.core.multiarray numpy._core.multiarray _reconstruct numpy ndarray dtype O8 |".split())
"""The texts with which numpy describes an array of objects: nothing of them is looked up."""


class Header(NamedTuple):
    """What stands before an array's data."""

    is_objects: bool
    shape: tuple[int, ...]
    kind: str


def read_header(file: BinaryIO, name: str) -> Header:
    """The description of the array; the file is left at its data.

    Raises:
        HcpError: the header is cut off, or is none of numpy's.
    """
    start = file.read(len(MAGIC) + 2)
    width = 2 if start[len(MAGIC) : len(MAGIC) + 1] == b"\x01" else 4
    size = int.from_bytes(file.read(width), "little")
    text = file.read(size) if size <= _MOST_HEADER else b""
    try:
        fields = ast.literal_eval(text.decode("latin-1").strip())
        kind, shape = str(fields["descr"]), tuple(int(part) for part in fields["shape"])
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError):
        raise HcpError(f"{name}: a broken .npy file; wanted Megatron-Bridge's packed rows; write it again") from None
    return Header(kind == "|O", shape, kind)


def packed_rows(file: BinaryIO, name: str, progress: Callable[[int], None]) -> Iterator[PackedBatch]:
    """The rows, one by one; `progress` hears how far the reader is.

    Raises:
        HcpError: the array holds anything else, or the file is cut off.
    """
    header = read_header(file, name)
    if not header.is_objects or len(header.shape) != 1:
        raise HcpError(
            f"{name}: an array {visible(header.kind)[:20]} of shape {str(header.shape)[:40]}; wanted Megatron-Bridge's "
            "packed rows, a list of dictionaries with input_ids, loss_mask and seq_start_id"
        )
    reader = _Reader(file, name, progress)
    reader.skip_head()
    number = 0
    while (row := reader.row()) is not None:
        yield batch_of(row, name, number)
        number += 1
    if number != header.shape[0]:
        raise HcpError(f"{name}: {number} rows of {header.shape[0]}; wanted all of them; write the file again")


class _Reader:
    def __init__(self, file: BinaryIO, name: str, progress: Callable[[int], None]) -> None:
        self.file, self.name, self.progress = file, name, progress
        self.buffer, self.at = b"", 0
        self.memo = 0
        self.texts: dict[int, str] = {}

    def skip_head(self) -> None:
        """Passes over numpy's own words, up to the list of the array's items."""
        while (operation := self.operation()) != b"]":
            if operation in (b"\x8c", b"X"):
                self.text(operation, _HEAD)
            elif operation == b"c":
                self.line(_HEAD), self.line(_HEAD)
            elif operation in _SKIPPED:
                self.take(_SKIPPED[operation])
            elif operation in (b"C", b"B"):
                self.take(self.whole(1 if operation == b"C" else 4))
            elif operation not in b"\x93\x85\x86\x87R(tNb\x89\x88":
                raise self.foreign(operation)

    def row(self) -> Row | None:
        """The next dictionary; None after the last."""
        while (operation := self.operation()) in (b"(", b"e", b"a", b"t", b"b"):
            pass
        if operation == b".":
            return None
        if operation != b"}":
            raise self.foreign(operation)
        fields: dict[str, Any] = {}
        if self.operation() != b"(":
            raise self.broken("a dictionary without its fields")
        while (operation := self.operation()) != b"u":
            key = self.key(operation)
            if self.operation() != b"]":
                raise self.broken(f"{key} is no list")
            fields[key] = self.switches() if key == "loss_mask" else self.items()
        if sorted(fields) != sorted(_FIELDS):
            raise self.broken(f"a dictionary with {', '.join(sorted(fields)) or 'nothing'}")
        tokens, mask, starts = (fields[name] for name in _FIELDS)
        return Row(tokens, mask, [_number(item) for item in starts])

    def switches(self) -> bytes:
        """The truth of each number of a list, a byte each."""
        found = bytearray()
        for run in self.runs():
            if not run.strip(b"\x88\x89"):
                found += run.translate(_TRUTH)
            else:
                found += bytes(_is_on(item) for item in _ITEM.findall(run))
        return bytes(found)

    def items(self) -> list[bytes]:
        """The numbers of a list, each as it is written."""
        return [item for run in self.runs() for item in _ITEM.findall(run)]

    def runs(self) -> Iterator[bytes]:
        """The numbers of a list, as they stand together."""
        size = 0
        while True:
            operation = self.operation(peek=True)
            if operation in (b"(", b"e", b"a"):
                self.at += 1
                continue
            if _ITEM.match(operation + b"\0" * 8) is None:
                return
            self.fill(_LONGEST_ITEM)
            end = _ITEMS.match(self.buffer, self.at).end()  # type: ignore[union-attr]
            if end == self.at:
                raise self.broken("it is cut off")
            size += end - self.at
            if size > _LONGEST_ITEM * MAX_ROW:
                raise self.broken(f"a list of more than {MAX_ROW:,} numbers")
            yield self.buffer[self.at : end]
            self.at = end

    def operation(self, peek: bool = False) -> bytes:
        """The next operation that is neither a frame nor a note in the memo."""
        while True:
            self.fill(16)
            operation = self.buffer[self.at : self.at + 1]
            if operation == b"\x95":
                self.at += 9
            elif operation == b"\x94":
                self.at, self.memo = self.at + 1, self.memo + 1
            elif operation in (b"q", b"r"):
                width = 1 if operation == b"q" else 4
                self.memo = int.from_bytes(self.buffer[self.at + 1 : self.at + 1 + width], "little") + 1
                self.at += 1 + width
            elif not operation:
                raise self.broken("it is cut off")
            else:
                self.at += not peek
                return operation

    def key(self, operation: bytes) -> str:
        if operation in (b"h", b"j"):
            return self.texts.get(self.whole(1 if operation == b"h" else 4), "")
        if operation not in (b"\x8c", b"X"):
            raise self.foreign(operation)
        text = self.text(operation, _FIELDS)
        self.operation(peek=True)  # its place in the memo
        if len(self.texts) < _MOST_MEMO:
            self.texts[self.memo - 1] = text
        return text

    def text(self, operation: bytes, known: frozenset[str] | tuple[str, ...]) -> str:
        return self.known(self.take(self.whole(1 if operation == b"\x8c" else 4)), known)

    def line(self, known: frozenset[str]) -> str:
        self.fill(200)
        end = self.buffer.find(b"\n", self.at)
        return self.known(self.take(max(end, self.at) + 1 - self.at)[:-1], known)

    def known(self, word: bytes, known: frozenset[str] | tuple[str, ...]) -> str:
        text = word.decode("latin-1")
        if text not in known:
            raise self.broken(f"it names {visible(text)[:40]!r}")
        return text

    def whole(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def take(self, count: int) -> bytes:
        self.fill(min(count, 2 * _MOST_HEADER))
        taken = self.buffer[self.at : self.at + count]
        if len(taken) < count:
            raise self.broken("it is cut off")
        self.at += count
        return taken

    def fill(self, count: int) -> None:
        """Reads on until so many bytes are there, or the file ends."""
        if len(self.buffer) - self.at < count:
            more = self.file.read(_CHUNK)
            self.buffer, self.at = self.buffer[self.at :] + more, 0
            self.progress(self.file.tell())

    def foreign(self, operation: bytes) -> HcpError:
        return self.broken(f"the operation {operation!r}, which lists of numbers do not need")

    def broken(self, what: str) -> HcpError:
        return HcpError(
            f"{self.name}: no packed rows that can be read without unpickling ({what}); wanted what Megatron-Bridge "
            "writes: lists of numbers in dictionaries; pack to parquet"
        )


_SKIPPED = {b"\x80": 1, b"K": 1, b"M": 2, b"J": 4, b"h": 1, b"j": 4}
"""Operations of numpy's description that carry so many bytes."""


def _number(item: bytes) -> int:
    return int.from_bytes(item[1:], "little", signed=item[:1] == b"J")


def _is_on(item: bytes) -> bool:
    return item == b"\x88" or (len(item) > 1 and bool(item[1:].strip(b"\0")))
