"""Finds the few lines of huge logs that matter: a search for byte tokens, chunk by chunk, in constant memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from hcp.core.errors import HcpError

_CHUNK = 4 << 20
_LONGEST_LINE = 1 << 20
_SAMPLES = 4
"""Of a line that every step repeats, so many per chunk are looked at (from its start), and the chunk's last one."""


class Hit(NamedTuple):
    """A line that holds at least one token: where it starts, and its text without the line end."""

    offset: int
    line: bytes
    progress: int
    """Progress lines between the hit before this one (or the start of the chunk) and this one."""


def find_logs(targets: Sequence[Path]) -> list[Path]:
    """The files to read: each file itself, and of a folder every text file below it, by name.

    Raises:
        HcpError: a target does not exist, or a folder holds no text file.
    """
    found: list[Path] = []
    for target in targets:
        if not target.is_dir():
            if not target.exists():
                raise HcpError(f"{target}: no such file; wanted log files or a folder of logs; check the path")
            found.append(target)
            continue
        inside = [Path(folder) / name for folder, _, names in os.walk(target) for name in names]
        texts = sorted(path for path in inside if path.is_file() and is_text(path))
        if not texts:
            raise HcpError(f"{target}: no text file in this folder; wanted logs; name the files themselves")
        found.extend(texts)
    return list(dict.fromkeys(found))


def is_text(path: Path) -> bool:
    """Whether a file looks like a log: readable, and no NUL byte near its start (a checkpoint has some)."""
    try:
        with path.open("rb") as file:
            return b"\0" not in file.read(4096)
    except OSError:
        return False


def has_text(path: Path) -> bool:
    """Whether a file starts like a log: it has bytes, and none of the first is NUL."""
    with path.open("rb") as file:
        start = file.read(4096)
    return bool(start) and b"\0" not in start


def scan(
    file: BinaryIO,
    tokens: Sequence[bytes],
    repeated: Sequence[bytes],
    progress: Sequence[bytes],
    advanced: Callable[[int], None] = lambda count: None,
) -> Iterator[Hit]:
    """The lines of a file that hold a token, in order.

    Args:
        file: read from where it stands to its end; offsets count from there.
        tokens: every line with one of these is given.
        repeated: of lines with one of these (a training step's line) only a few per chunk are given.
        progress: tokens that each mark a training step; their lines are counted, exactly.
        advanced: called with the bytes of every chunk read.
    """
    offset, rest = 0, b""
    while True:
        block = file.read(_CHUNK)
        advanced(len(block))
        data = rest + block
        end = len(data) if not block else data.rfind(b"\n") + 1
        if not block and not data:
            return
        if end == 0 and len(data) >= _LONGEST_LINE:
            end = len(data)  # a line without an end: taken in pieces, so that memory stays constant
        yield from _hits(data, end, offset, tokens, repeated, progress)
        offset, rest = offset + end, data[end:]
        if not block:
            return


def _hits(
    data: bytes, end: int, base: int, tokens: Sequence[bytes], repeated: Sequence[bytes], progress: Sequence[bytes]
) -> Iterator[Hit]:
    starts: set[int] = set()
    for token in tokens:
        at = data.find(token, 0, end)
        while at >= 0:
            starts.add(data.rfind(b"\n", 0, at) + 1)
            stop = data.find(b"\n", at, end)
            at = data.find(token, stop, end) if stop >= 0 else -1
    for token in repeated:
        at, count = data.find(token, 0, end), 0
        while at >= 0 and count < _SAMPLES:
            starts.add(data.rfind(b"\n", 0, at) + 1)
            stop = data.find(b"\n", at, end)
            at, count = (data.find(token, stop, end) if stop >= 0 else -1), count + 1
        last = data.rfind(token, 0, end)
        if last >= 0:
            starts.add(data.rfind(b"\n", 0, last) + 1)
    before = 0
    for start in sorted(starts):
        stop = data.find(b"\n", start, end)
        yield Hit(
            base + start,
            data[start : stop if stop >= 0 else end][:_LONGEST_LINE],
            sum(data.count(token, before, start) for token in progress),
        )
        before = start
    if end:
        yield Hit(base + end, b"", sum(data.count(token, before, end) for token in progress))


def line_number(path: Path, offset: int) -> int:
    """The 1-based number of the line that starts at the byte `offset`."""
    number, left = 1, offset
    with path.open("rb") as file:
        while left > 0:
            block = file.read(min(_CHUNK, left))
            if not block:
                break
            number += block.count(b"\n")
            left -= len(block)
    return number


def around(path: Path, offset: int, before: int = 16384, after: int = 2048) -> tuple[str, str]:
    """The text before a byte offset, and the text from it on."""
    start = max(0, offset - before)
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(offset - start + after)
    return data[: offset - start].decode("utf-8", "replace"), data[offset - start :].decode("utf-8", "replace")
