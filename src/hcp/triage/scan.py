"""Finds the few lines of huge logs that matter: a search for byte tokens, chunk by chunk, in constant memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from hcp.triage.signatures.progress import STEP_LINE

_CHUNK = 4 << 20
_LONGEST_LINE = 1 << 20
_BEFORE, _AFTER = 16384, 2048
"""Bytes around a line that are still there when it is looked at: a log is read once, for a pipe gives it only once."""
_DIGITS = b"0123456789"
_LONGEST_STEP = 2000
_SAMPLES = 4
"""Of a line that every step repeats, so many per chunk are looked at (from its start), and the chunk's last one."""


class Bytes(Protocol):
    """What can be read: a file, or a pipe."""

    def read(self, size: int, /) -> bytes | None: ...


class Hit(NamedTuple):
    """A line that holds at least one token: where it starts, and its text without the line end."""

    offset: int
    number: int
    """Of the line, from 1."""
    line: bytes
    progress: int
    """Progress lines between the hit before this one (or the start of the chunk) and this one."""
    chunk: bytes
    at: int
    """Where the line starts in the chunk."""

    def before(self) -> str:
        """The text before the line, as far as it is kept."""
        return self.chunk[max(0, self.at - _BEFORE) : self.at].decode("utf-8", "replace")

    def after(self) -> str:
        """The text from the line's start on."""
        return self.chunk[self.at : self.at + _AFTER].decode("utf-8", "replace")


def scan(
    file: Bytes,
    tokens: Sequence[bytes],
    repeated: Sequence[bytes],
    progress: Sequence[bytes],
    advanced: Callable[[int], None] = lambda count: None,
    start: bytes = b"",
) -> Iterator[Hit]:
    """The lines of a file that hold a token, in order.

    Args:
        file: read from where it stands to its end.
        tokens: every line with one of these is given.
        repeated: of lines with one of these (a training step's line) only a few per chunk are given.
        progress: tokens that each mark a training step; their lines are counted, exactly (others: `_steps`).
        advanced: called with the bytes of every chunk read.
        start: what was read of the file before; offsets count from its first byte.
    """
    chunk, begin, offset, number = start, 0, 0, 1
    advanced(len(start))
    while True:
        block = file.read(_CHUNK) or b""
        advanced(len(block))
        chunk += block
        end = len(chunk)
        if block:
            # Up to the last line that still has what follows it beside it.
            end = chunk.rfind(b"\n", begin, max(begin, len(chunk) - _AFTER)) + 1
            if end <= begin:
                if len(chunk) - begin < _LONGEST_LINE + _AFTER:
                    continue
                end = len(chunk) - _AFTER  # a line without an end: taken in pieces, so that memory stays constant
        said = _said(chunk[begin:end], (*tokens, *repeated, *progress, b"oss"))
        searched, few = ([token for token in group if token in said] for group in (tokens, repeated))
        steps = _steps(chunk, begin, end, [token for token in progress if token in said], b"oss" in said)
        yield from _hits(chunk, begin, end, offset, number, searched, few, steps)
        if not block:
            return
        number += chunk.count(b"\n", begin, end)
        kept = max(0, end - _BEFORE)
        chunk, begin, offset = chunk[kept:], end - kept, offset + kept


def _said(text: bytes, tokens: Sequence[bytes]) -> set[bytes]:
    """The tokens that the text may hold. Of lines that differ only in digits, as most do, one is searched."""
    shapes = b"\n".join(set(text.translate(None, _DIGITS).split(b"\n")))
    return {token for token in tokens if token.translate(None, _DIGITS) in shapes}


def _steps(chunk: bytes, begin: int, end: int, tokens: Sequence[bytes], has_loss: bool) -> Callable[[int, int], int]:
    """What counts the steps' lines between two places of `chunk[begin:end]`.

    Where none of the known ways to print a step is used, lines count that number a step and give its loss.
    """
    if tokens or not has_loss:
        return lambda start, stop: sum(chunk.count(token, start, stop) for token in tokens)
    at, places = chunk.find(b"oss", begin, end), []
    while at >= 0:
        stop = chunk.find(b"\n", at, end)
        start = max(begin, chunk.rfind(b"\n", begin, at) + 1)
        if STEP_LINE.search(chunk, start, min(stop if stop >= 0 else end, start + _LONGEST_STEP)):
            places.append(at)
        at = chunk.find(b"oss", stop, end) if stop >= 0 else -1
    return lambda start, stop: bisect_left(places, stop) - bisect_left(places, start)


def _hits(
    chunk: bytes,
    begin: int,
    end: int,
    offset: int,
    number: int,
    tokens: Sequence[bytes],
    repeated: Sequence[bytes],
    steps: Callable[[int, int], int],
) -> Iterator[Hit]:
    """The hits of `chunk[begin:end]`; `chunk` starts at the file's byte `offset`, line `number` at `begin`."""
    starts: set[int] = set()
    for token in tokens:
        at = chunk.find(token, begin, end)
        while at >= 0:
            starts.add(max(begin, chunk.rfind(b"\n", begin, at) + 1))
            stop = chunk.find(b"\n", at, end)
            at = chunk.find(token, stop, end) if stop >= 0 else -1
    for token in repeated:
        at, count = chunk.find(token, begin, end), 0
        while at >= 0 and count < _SAMPLES:
            starts.add(max(begin, chunk.rfind(b"\n", begin, at) + 1))
            stop = chunk.find(b"\n", at, end)
            at, count = (chunk.find(token, stop, end) if stop >= 0 else -1), count + 1
        last = chunk.rfind(token, begin, end) if count else -1
        if last >= 0:
            starts.add(max(begin, chunk.rfind(b"\n", begin, last) + 1))
    before = begin
    for start in sorted(starts):
        stop = chunk.find(b"\n", start, end)
        number += chunk.count(b"\n", before, start)
        yield Hit(
            offset + start,
            number,
            chunk[start : stop if stop >= 0 else end][:_LONGEST_LINE],
            steps(before, start),
            chunk,
            start,
        )
        before = start
    if end > begin:
        yield Hit(offset + end, number + chunk.count(b"\n", before, end), b"", steps(before, end), chunk, end)
