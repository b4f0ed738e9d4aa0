"""Which logs are read: files, folders of files, pipes and standard input; nothing else is opened."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hcp.core.errors import HcpError
from hcp.core.visible import visible
from hcp.triage.scan import Bytes

STDIN = Path("<stdin>")
"""Stands for standard input; a file of this name is another `Path`."""
_START = 4096


class Logs(NamedTuple):
    """The logs to read, and what lies in the named folders and is not read: `(path, why)`."""

    paths: tuple[Path, ...]
    unread: tuple[tuple[Path, str], ...] = ()

    def size(self) -> int:
        """The bytes of all files, as far as they state them: a pipe states none."""
        return sum(os.stat(path).st_size for path in self.paths if path is not STDIN and path.exists())


def find_logs(targets: Sequence[str]) -> Logs:
    """The logs to read: each file itself, of a folder every text file below it by name, and for `-` standard input.

    A link in a folder is followed where it leads into the folder: what lies outside was not named.

    Raises:
        HcpError: a target does not exist or is a device, or a folder holds no text file.
    """
    found: list[Path] = []
    unread: list[tuple[Path, str]] = []
    for target in targets:
        path = STDIN if target == "-" else Path(target)
        if path is STDIN:
            found.append(path)
        elif os.path.isdir(path):
            inside = _texts_in(path, unread)
            if not inside:
                raise HcpError(
                    f"{visible(target)}: no text file in this folder; wanted logs; name the files themselves"
                )
            found += inside
        elif not os.path.exists(path):
            raise HcpError(f"{visible(target)}: no such file; wanted log files or a folder of logs; check the path")
        elif not (os.path.isfile(path) or path.is_fifo()):
            raise HcpError(
                f"{visible(target)}: found a device or a socket; wanted log files; to read a stream, pipe it"
            )
        else:
            found.append(path)
    once = {(path, path is STDIN): path for path in found}
    return Logs(tuple(once.values()), tuple(unread))


@contextmanager
def opened(path: Path) -> Iterator[tuple[Bytes, bytes]]:
    """A log, open, and its first bytes, which are already read: a pipe gives them only once.

    A named pipe that nobody writes to is empty; it is not waited for.

    Raises:
        OSError: it cannot be opened or read.
        HcpError: standard input is closed.
    """
    if path is STDIN:
        if sys.stdin is None:
            raise HcpError("found no standard input: it is closed; wanted a log there; pipe one, or name a file")
        yield sys.stdin.buffer, sys.stdin.buffer.read(_START)
        return
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(handle, "rb", buffering=0) as file:
        if not stat.S_ISFIFO(os.fstat(handle).st_mode):
            yield file, file.read(_START) or b""
            return
        start = file.read(_START)  # None: someone writes, but has not written yet
        os.set_blocking(handle, True)
        yield file, (file.read(_START) if start is None else start) or b""


def is_log(start: bytes) -> bool:
    """Whether a file that begins so is a log: it has bytes, and none of the first is NUL (a checkpoint has some)."""
    return bool(start) and b"\0" not in start


def _texts_in(folder: Path, unread: list[tuple[Path, str]]) -> list[Path]:
    try:
        root = os.path.realpath(folder)
    except OSError as error:  # the current folder was removed
        unread.append((folder, error.strerror or "it cannot be read"))
        return []
    texts = []

    def cannot(error: OSError) -> None:
        unread.append((Path(error.filename or folder), error.strerror or "it cannot be read"))

    for inside, folders, names in os.walk(folder, onerror=cannot):
        folders.sort()
        for path in (Path(inside) / name for name in sorted(names)):
            try:
                if os.path.islink(path) and os.path.commonpath((root, os.path.realpath(path))) != root:
                    unread.append((path, "a link that leaves the folder"))
                elif stat.S_ISREG(os.stat(path).st_mode):
                    with opened(path) as (_, start):
                        if b"\0" not in start:
                            texts.append(path)
            except OSError as error:
                unread.append((path, error.strerror or "it cannot be read"))
    return sorted(texts)
