"""Megatron's `.idx` file, which says how long each document of a data set is. Read without numpy."""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

from hcp.core.errors import HcpError
from hcp.data.sampling import taken

MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<QBQQ")  # version, code of the token's dtype, sequences, document boundaries
_DTYPE_CODES = range(1, 9)
_MAX_PARTS = 100_000
"""Sequences (sentences, images) of one document."""


def read_index(file: BinaryIO, name: str, take: int | None = None) -> list[int]:
    """Tokens of each document with at least one, in order; without documents, of each sequence.

    The file has MAGIC, a header, then per sequence its length (int32) and offset (int64), the sequence at which each
    document starts and the last one ends (int64), and in multimodal data sets a mode (int8) per sequence.
    Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py, _IndexWriter.

    Raises:
        HcpError: it is cut short, or holds numbers that no writer writes.
    """
    start = len(MAGIC) + _HEADER.size
    file.seek(len(MAGIC))
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise _broken(name, f"it ends after {len(MAGIC) + len(header)} bytes")
    version, code, sequences, boundaries = _HEADER.unpack(header)
    if version != 1 or code not in _DTYPE_CODES:
        raise _broken(name, f"it has version {version} and dtype code {code}, not 1 and 1 to 8")
    wanted = start + 12 * sequences + 8 * boundaries
    size = file.seek(0, os.SEEK_END)
    if size not in (wanted, wanted + sequences):
        raise _broken(
            name, f"{sequences:,} sequences and {boundaries:,} boundaries need {wanted:,} bytes, not {size:,}"
        )
    index = _Index(file, name, start, start + 12 * sequences, sequences)
    lengths = index.documents(boundaries - 1, take) if boundaries > 1 else index.sequences(take)
    found = [length for length in lengths if length > 0]
    if not found:
        raise _broken(name, "it has no document with a token")
    return found


class _Index:
    def __init__(self, file: BinaryIO, name: str, lengths_at: int, boundaries_at: int, count: int) -> None:
        self.file, self.name, self.lengths_at, self.boundaries_at = file, name, lengths_at, boundaries_at
        self.count = count

    def sequences(self, take: int | None) -> list[int]:
        return [self._length(i, i + 1) for i in taken(self.count, take, self.name)]

    def documents(self, count: int, take: int | None) -> list[int]:
        return [self._length(*self._bounds(i)) for i in taken(count, take, self.name)]

    def _bounds(self, document: int) -> tuple[int, int]:
        first, last = struct.unpack("<qq", self._bytes(self.boundaries_at + 8 * document, 16))
        if not 0 <= first <= last <= self.count:
            raise _broken(self.name, f"document {document} has sequences {first} to {last} of {self.count}")
        if last - first > _MAX_PARTS:
            raise _broken(self.name, f"document {document} has {last - first:,} sequences, more than {_MAX_PARTS:,}")
        return first, last

    def _length(self, first: int, last: int) -> int:
        lengths = struct.unpack(f"<{last - first}i", self._bytes(self.lengths_at + 4 * first, 4 * (last - first)))
        if lengths and min(lengths) < 0:
            raise _broken(self.name, f"a sequence from {first} to {last} has {min(lengths)} tokens")
        return sum(lengths)

    def _bytes(self, at: int, count: int) -> bytes:
        self.file.seek(at)
        data = self.file.read(count)
        if len(data) < count:
            raise _broken(self.name, "it became shorter while it was read")
        return data


def _broken(name: str, what: str) -> HcpError:
    return HcpError(f"{name}: no index of Megatron that can be read: {what}; wanted the .idx file beside a .bin file")
