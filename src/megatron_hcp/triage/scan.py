"""Finds the few lines of huge logs that matter: a search for byte tokens, chunk by chunk, in constant memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from megatron_hcp.triage.course.idle import Idle
from megatron_hcp.triage.course.marks import Course, Kinds, Marks

CHUNK = 2 << 20
_LONGEST_LINE = 1 << 20
_BEFORE, _AFTER = 16384, 2048
"""Bytes around a line that are still there when it is looked at: a log is read once, for a pipe gives it only once."""
_SAMPLES = 2
"""Of a line that every step repeats, so many per chunk are looked at (from its start), and the chunk's last one."""


class Bytes(Protocol):
    """What can be read: a file, or a pipe."""

    def read(self, size: int, /) -> bytes | None: ...


class LogBlocks(Protocol):
    """Likewise, where a block may stand in memory that the next one takes."""

    def read(self, size: int, /) -> bytes | memoryview | None: ...


class Hit(NamedTuple):
    """A line that holds at least one token: where it starts, and its text without the line end."""

    offset: int
    number: int
    """Of the line, from 1."""
    line: bytes
    progress: int
    """Training steps between the hit before this one (or the start of the chunk) and this one, which may be one."""
    chunk: bytes
    at: int
    """Where the line starts in the chunk."""
    finite: int = 0
    """As `progress`, of lines that state a loss or a gradient norm."""
    is_not_finite: bool = False
    """Whether the line's loss or gradient norm is no number."""
    is_labelled: bool = False
    """Whether a launcher may have labelled a line of the chunk with a rank or task."""
    tokens: Sequence[bytes] = ()
    """What the chunk was searched for: no other token stands in it."""
    is_last: bool = False
    """Whether it is the hit at the end of the last chunk."""
    runs: bool = False
    """Of the hit at the end of a chunk: whether the chunk shows that the program ran."""
    idle: Idle | None = None
    """Likewise: what shows, so far, that the training learns nothing."""
    last_step: bytes = b""
    """Likewise: the chunk's last line of a training step."""

    def before(self) -> str:
        """The text before the line, as far as it is kept."""
        return self.chunk[max(0, self.at - _BEFORE) : self.at].decode("utf-8", "replace")

    def after(self) -> str:
        """The text from the line's start on."""
        return self.chunk[self.at : self.at + _AFTER].decode("utf-8", "replace")


def scan(
    file: LogBlocks,
    tokens: Sequence[bytes],
    repeated: Sequence[bytes],
    advanced: Callable[[int], None] = lambda count: None,
    start: bytes = b"",
    kinds: Kinds | None = None,
) -> Iterator[Hit]:
    """The lines of a file that hold a token, or a loss or gradient norm that is no number, in order.

    Args:
        file: read from where it stands to its end.
        tokens: every line with one of these is given.
        repeated: of lines with one of these (a training step's line) only a few per chunk are given.
        advanced: called with the bytes of every chunk read.
        start: what was read of the file before; offsets count from its first byte.
        kinds: what other files of the job have shown of their lines, for the same tokens.
    """
    course = Course(kinds or Kinds((*tokens, *repeated)))
    chunk, begin, offset, number = start, 0, 0, 1
    advanced(len(start))
    while True:
        block = file.read(CHUNK) or b""
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
        marks = course.read(chunk, begin, end)
        searched, few = ([token for token in group if token in marks.tokens] for group in (tokens, repeated))
        yield from _hits(chunk, begin, end, offset, number, searched, few, marks, is_last=not block)
        if not block:
            return
        number += marks.lines
        kept = max(0, end - _BEFORE)
        chunk, begin, offset = chunk[kept:], end - kept, offset + kept


def _hits(
    chunk: bytes,
    begin: int,
    end: int,
    offset: int,
    number: int,
    tokens: Sequence[bytes],
    repeated: Sequence[bytes],
    marks: Marks,
    is_last: bool,
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
    bad = {max(begin, chunk.rfind(b"\n", begin, at) + 1) for at in marks.not_finite}
    before, steps, finite, last = begin, 0, 0, number + marks.lines
    for start in sorted(starts | bad):
        stop = chunk.find(b"\n", start, end)
        is_near = start - before <= end - start
        number = number + chunk.count(b"\n", before, start) if is_near else last - chunk.count(b"\n", start, end)
        stop = stop if stop >= 0 else end
        counts = bisect_left(marks.steps, stop), bisect_left(marks.finite, stop)
        line = chunk[start:stop][:_LONGEST_LINE]
        progress, numbers = counts[0] - steps, counts[1] - finite
        is_bad = start in bad
        yield Hit(offset + start, number, line, progress, chunk, start, numbers, is_bad, marks.is_labelled, tokens)
        before, (steps, finite) = start, counts
    if end > begin:
        counts = len(marks.steps), len(marks.finite)
        yield Hit(
            offset + end,
            last,
            b"",
            counts[0] - steps,
            chunk,
            end,
            counts[1] - finite,
            is_labelled=marks.is_labelled,
            is_last=is_last,
            runs=marks.runs,
            idle=marks.idle,
            last_step=marks.last_step,
        )
