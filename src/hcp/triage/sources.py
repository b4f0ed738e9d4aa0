"""Which logs are read: files, folders of files, pipes and standard input; nothing else is opened."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hcp.core.errors import HcpError
from hcp.core.visible import visible
from hcp.triage.flight_recorder import is_dump
from hcp.triage.names import job_id
from hcp.triage.scan import Bytes

STDIN = Path("<stdin>")
"""Stands for standard input; a file of this name is another `Path`."""
_START = 4096


class Logs(NamedTuple):
    """The logs to read, what lies in the named folders and is not read (`(path, why)`), and flight-recorder dumps."""

    paths: tuple[Path, ...]
    unread: tuple[tuple[Path, str], ...] = ()
    dumps: tuple[Path, ...] = ()

    def size(self) -> int:
        """The bytes of all files, as far as they state them: a pipe states none."""
        return sum(os.stat(path).st_size for path in self.paths if path is not STDIN and path.exists())


def find_logs(targets: Sequence[str]) -> Logs:
    """The logs to read: each file itself, of a folder every text file below it by name, and for `-` standard input.

    A target that is no path but a job's id stands for the files and folders that are named by it: in the folders among
    the targets, which are then not read whole, or in the current folder and in `logs`. A link in a folder is followed
    where it leads into the folder: what lies outside was not named.

    Raises:
        HcpError: a target does not exist or is a device, or a folder holds no text file.
    """
    found = _Found()
    jobs = [target for target in targets if not os.path.lexists(target) and job_id(target)]
    folders = [target for target in targets if jobs and os.path.isdir(target)]
    for job in jobs:
        found.add_job(job, folders)
    for target in targets:
        path = STDIN if target == "-" else Path(target)
        if target in jobs or target in folders:
            continue
        if path is STDIN:
            found.paths.append(path)
        elif os.path.isdir(path):
            found.add_folder(path)
        elif not os.path.exists(path):
            raise HcpError(f"{visible(target)}: no such file; wanted log files or a folder of logs; check the path")
        elif not (os.path.isfile(path) or path.is_fifo()):
            raise HcpError(
                f"{visible(target)}: found a device or a socket; wanted log files; to read a stream, pipe it"
            )
        else:
            found.add_file(path)
    once = {(path, path is STDIN): path for path in found.paths}
    return Logs(tuple(once.values()), tuple(found.unread), tuple(dict.fromkeys(found.dumps)))


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


class _Found:
    """What the targets give."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.unread: list[tuple[Path, str]] = []
        self.dumps: list[Path] = []

    def add_file(self, path: Path) -> None:
        """A file that was named: a log, or a dump."""
        if path.is_file():
            try:
                with opened(path) as (_, start):
                    if is_dump(path, start):
                        self.dumps.append(path)
                        return
            except OSError:
                pass  # said when it is read
        self.paths.append(path)

    def add_folder(self, folder: Path) -> None:
        """The texts and dumps below a folder.

        Raises:
            HcpError: it has none.
        """
        before = len(self.paths) + len(self.dumps)
        self.paths += sorted(self._texts_in(folder))
        if len(self.paths) + len(self.dumps) == before:
            raise HcpError(
                f"{visible(str(folder))}: no text file in this folder; wanted logs; name the files themselves"
            )

    def add_job(self, job: str, folders: Sequence[str]) -> None:
        """What is named by a job's id in some folders, or in those where logs usually are.

        Raises:
            HcpError: nothing is.
        """
        named = re.compile(rf"(?<![0-9A-Za-z]){re.escape(job)}(?![0-9])")
        before = len(self.paths)
        for folder in map(Path, folders or (".", "logs")):
            try:
                names = sorted(os.listdir(folder))
            except OSError:
                continue
            for path in (folder / name for name in names if named.search(name)):
                if path.is_dir():
                    self.paths += sorted(self._texts_in(path))
                elif path.is_file():
                    self.add_file(path)
        if len(self.paths) == before:
            where = ", ".join(visible(folder) for folder in folders) or ". and logs"
            raise HcpError(
                f"{visible(job)}: no such file, and in {where} nothing is named by a job of this id; wanted log "
                f"files, a "
                "folder of logs, or a job's id; name the folder with its logs too"
            )

    def _texts_in(self, folder: Path) -> list[Path]:
        try:
            root = os.path.realpath(folder)
        except OSError as error:  # the current folder was removed
            self.unread.append((folder, error.strerror or "it cannot be read"))
            return []
        texts = []

        def cannot(error: OSError) -> None:
            self.unread.append((Path(error.filename or folder), error.strerror or "it cannot be read"))

        for inside, folders, names in os.walk(folder, onerror=cannot):
            folders.sort()
            for path in (Path(inside) / name for name in sorted(names)):
                try:
                    if os.path.islink(path) and os.path.commonpath((root, os.path.realpath(path))) != root:
                        self.unread.append((path, "a link that leaves the folder"))
                    elif stat.S_ISREG(os.stat(path).st_mode):
                        with opened(path) as (_, start):
                            if is_dump(path, start):
                                self.dumps.append(path)
                            elif b"\0" not in start:
                                texts.append(path)
                except OSError as error:
                    self.unread.append((path, error.strerror or "it cannot be read"))
        return texts
