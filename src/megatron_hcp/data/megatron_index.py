"""Reads the document lengths from Megatron's `.idx` file, without numpy."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

from megatron_hcp.data.sampling import taken
from megatron_hcp.ground.errors import HcpError

MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<QBQQ")  # version, code of the token's dtype, sequences, document boundaries
TOKEN_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}
"""Bytes per token, by dtype code: uint8, int8, int16, int32, int64, float64, float32, uint16."""
_DOCUMENTS = 1 << 16
"""How much is read at a time."""
_MAX_PARTS = 100_000
"""Maximum sequences (sentences, images) per document."""


def read_index(file: BinaryIO, name: str, take: int | None = None) -> list[int]:
    """Tokens of each non-empty document, in order; without documents, of each sequence.

    The file has MAGIC, a header, then per sequence its length (int32) and offset (int64), the sequence at which each
    document starts and the last one ends (int64), and in multimodal data sets a mode (int8) per sequence.
    Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py, _IndexWriter.

    Raises:
        HcpError: it is truncated, or contains numbers that no writer produces.
    """
    index, boundaries = _opened(file, name)
    lengths = index.documents(boundaries - 1, take) if boundaries > 1 else index.sequences(take)
    found = [length for length in lengths if length > 0]
    if not found:
        raise _broken(name, "all its documents are empty")
    return found


def each_chunk(file: BinaryIO, name: str) -> Iterator[list[int]]:
    """Tokens of each non-empty document, some thousands at a time; without documents, of each sequence.

    Raises:
        HcpError: as `read_index`.
    """
    index, boundaries = _opened(file, name)
    count = boundaries - 1 if boundaries > 1 else index.count
    for first in range(0, count, _DOCUMENTS):
        last = min(first + _DOCUMENTS, count)
        lengths = index.lengths(first, last) if boundaries <= 1 else index.document_lengths(first, last)
        yield [length for length in lengths if length > 0]


def data_bytes(file: BinaryIO, name: str) -> int:
    """The size in bytes that the .bin file must have, by this .idx."""
    index, _ = _opened(file, name)
    chunks = range(0, index.count, _DOCUMENTS)
    tokens = sum(sum(index.lengths(first, min(first + _DOCUMENTS, index.count))) for first in chunks)
    return tokens * index.token_bytes


def _opened(file: BinaryIO, name: str) -> tuple[_Index, int]:
    """The index, and its number of document boundaries."""
    start = len(MAGIC) + _HEADER.size
    file.seek(len(MAGIC))
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise _broken(name, f"it ends after {len(MAGIC) + len(header)} bytes")
    version, code, sequences, boundaries = _HEADER.unpack(header)
    if version != 1 or code not in TOKEN_BYTES:
        raise _broken(name, f"it has version {version} and dtype code {code}, not 1 and 1 to 8")
    wanted = start + 12 * sequences + 8 * boundaries
    size = file.seek(0, os.SEEK_END)
    if size not in (wanted, wanted + sequences):
        raise _broken(
            name, f"{sequences:,} sequences and {boundaries:,} boundaries need {wanted:,} bytes, not {size:,}"
        )
    return _Index(file, name, start, start + 12 * sequences, sequences, TOKEN_BYTES[code]), boundaries


class _Index:
    def __init__(
        self, file: BinaryIO, name: str, lengths_at: int, boundaries_at: int, count: int, token_bytes: int
    ) -> None:
        self.token_bytes = token_bytes
        self.file, self.name, self.lengths_at, self.boundaries_at = file, name, lengths_at, boundaries_at
        self.count = count

    def sequences(self, take: int | None) -> list[int]:
        return [self._length(i, i + 1) for i in taken(self.count, take, self.name)]

    def documents(self, count: int, take: int | None) -> list[int]:
        return [self._length(*self._bounds(i)) for i in taken(count, take, self.name)]

    def lengths(self, first: int, last: int) -> tuple[int, ...]:
        """The lengths of the sequences from one to another."""
        lengths = struct.unpack(f"<{last - first}i", self._bytes(self.lengths_at + 4 * first, 4 * (last - first)))
        if lengths and min(lengths) < 0:
            raise _broken(self.name, f"a sequence from {first} to {last} has {min(lengths)} tokens")
        return lengths

    def document_lengths(self, first: int, last: int) -> list[int]:
        """The lengths of the documents from one to another."""
        count = last - first + 1
        bounds = struct.unpack(f"<{count}q", self._bytes(self.boundaries_at + 8 * first, 8 * count))
        if list(bounds) == list(range(bounds[0], bounds[0] + count)) and bounds[0] >= 0 and bounds[-1] <= self.count:
            return list(self.lengths(bounds[0], bounds[-1]))
        return [self._length(*self._bounds(document)) for document in range(first, last)]

    def _bounds(self, document: int) -> tuple[int, int]:
        first, last = struct.unpack("<qq", self._bytes(self.boundaries_at + 8 * document, 16))
        if not 0 <= first <= last <= self.count:
            raise _broken(self.name, f"document {document} has sequences {first} to {last} of {self.count}")
        if last - first > _MAX_PARTS:
            raise _broken(self.name, f"document {document} has {last - first:,} sequences, more than {_MAX_PARTS:,}")
        return first, last

    def _length(self, first: int, last: int) -> int:
        return sum(self.lengths(first, last))

    def _bytes(self, at: int, count: int) -> bytes:
        self.file.seek(at)
        data = self.file.read(count)
        if len(data) < count:
            raise _broken(self.name, "it was truncated while being read")
        return data


def _broken(name: str, what: str) -> HcpError:
    return HcpError(
        f"{name}: not a readable Megatron index: {what}", wanted="the .idx file that belongs to a .bin file"
    )
