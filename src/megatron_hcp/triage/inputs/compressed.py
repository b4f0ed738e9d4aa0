"""Logs that were compressed, read in bounded pieces: gzip, bzip2, xz, and zstd where its package is installed."""

from __future__ import annotations

import bz2
import importlib
import lzma
import zlib
from collections.abc import Callable
from typing import Protocol

from megatron_hcp.triage.scan import Bytes

_BLOCK = 1 << 16
_PIECE = 1 << 20
"""Bytes that are given at a time, however many a compressed block holds."""
_MOST = 64 << 30
"""A log of this length is none: some bytes of a compressed file can stand for a million times as many."""
_MOST_MEMORY = 256 << 20
"""Of xz, whose files say how much it takes to read them."""


class Unreadable(Exception):
    """Why a file cannot be read, or not to its end; for a reader."""


class _Stream(Protocol):
    """What the standard library's decompressors have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zlib:
    """zlib's decompressor with the methods of the others; it keeps what it has not used yet itself."""

    def __init__(self) -> None:
        self.inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self.inner.eof

    @property
    def unused_data(self) -> bytes:
        return self.inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self.inner.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self.inner.decompress(self.inner.unconsumed_tail + data, max_length)


def _zstd() -> _Stream:
    for name in ("compression.zstd", "backports.zstd"):  # Python's own, since 3.14, and its copy for older ones
        try:
            stream: _Stream = importlib.import_module(name).ZstdDecompressor()
        except ImportError:
            continue
        return stream
    raise Unreadable("it is compressed with zstd, which `pip install 'megatron-hcp[logs]'` reads")


_KINDS: dict[bytes, tuple[str, Callable[[], _Stream]]] = {
    b"\x1f\x8b": ("gzip", _Zlib),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
    b"\xfd7zXZ\x00": ("xz", lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY)),
    b"\x28\xb5\x2f\xfd": ("zstd", _zstd),
}
"""The first bytes of a compressed file -> what it is compressed with, and what reads it."""


def unpacked(file: Bytes, start: bytes, first: int) -> tuple[Bytes, bytes]:
    """A file, and its first bytes, decompressed where they say that it is compressed.

    Args:
        file: read from behind `start` on.
        start: what was read of the file before.
        first: the number of decompressed bytes to read at once.

    Raises:
        Unreadable: what it was compressed with is not installed, or its beginning is broken.
    """
    for mark, (name, make) in _KINDS.items():
        if start.startswith(mark):
            reader = _Unpacked(file, start, name, make)
            return reader, reader.read(first)
    return file, start


class _Unpacked:
    """A compressed file of one or more streams; one that is cut off ends where it is cut."""

    def __init__(self, file: Bytes, start: bytes, name: str, make: Callable[[], _Stream]) -> None:
        self.file, self.data, self.name, self.make = file, start, name, make
        self.stream = make()
        self.given = 0

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end of the file.

        Raises:
            Unreadable: it is broken, or longer than any log.
        """
        text = b""
        while not text:
            stream = self.stream
            if stream.eof:
                self.data = stream.unused_data or self.file.read(_BLOCK) or b""
                if not self.data.strip(b"\0"):
                    return b""
                self.stream = stream = self.make()
            elif not self.data and stream.needs_input:
                self.data = self.file.read(_BLOCK) or b""
                if not self.data:
                    return b""
            data, self.data = self.data, b""
            try:
                text = stream.decompress(data, max_length=min(size, _PIECE))
            except Exception:  # each library has errors of its own
                raise Unreadable(f"its {self.name} data is broken") from None
        self.given += len(text)
        if self.given > _MOST:
            raise Unreadable(f"it holds more than {_MOST >> 30} GiB of text")
        return text
