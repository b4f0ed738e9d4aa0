"""Which logs are read: files, folders of files, pipes and standard input; nothing else is opened."""

from __future__ import annotations

import codecs
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.triage.collective.flight_recorder import is_dump
from megatron_hcp.triage.inputs.compressed import Unreadable, unpacked
from megatron_hcp.triage.inputs.lead import START, is_text
from megatron_hcp.triage.inputs.log_name import PACKED, PREVIOUS
from megatron_hcp.triage.names import job_id
from megatron_hcp.triage.scan import Bytes

_KERNELS = ("proc", "sys")
STDIN = Path("<stdin>")
"""Stands for standard input; a file of this name is another `Path`."""


class Logs(NamedTuple):
    """The logs to read, what lies in the named folders and is not read, and flight-recorder dumps."""

    paths: tuple[Path, ...]
    unread: tuple[tuple[Path, str], ...] = ()
    """Each with why."""
    dumps: tuple[Path, ...] = ()
    binary: tuple[Path, ...] = ()
    """Files of the folders that begin like no log."""

    def size(self) -> int:
        """The bytes of all files, as far as they state them: a pipe states none."""
        return sum(size for size, _ in self.state().values())

    def state(self) -> dict[Path, tuple[int, int]]:
        """Of each file that is there, its bytes and when it was written last, in nanoseconds."""
        said = {}
        for path in (*self.paths, *self.dumps):
            if path is not STDIN and path.exists():
                status = os.stat(path)
                said[path] = status.st_size, status.st_mtime_ns
        return said


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
        elif os.path.isdir(target):  # of the word itself: a Path of an empty one is the current folder
            found.add_folder(path)
        elif not os.path.exists(target):
            raise HcpError(
                f"{visible(target) or repr(target)}: no such file",
                wanted="log files or a folder of logs",
                do="check the path",
            )
        elif not (os.path.isfile(path) or path.is_fifo()):
            raise HcpError(
                f"{visible(target)}: found a device or a socket", wanted="log files", do="to read a stream, pipe it"
            )
        else:
            found.add_file(path)
    once = {(path, path is STDIN): path for path in found.paths}
    dumps, binary = tuple(dict.fromkeys(found.dumps)), tuple(dict.fromkeys(found.binary))
    return Logs(tuple(once.values()), tuple(found.unread), dumps, binary)


@contextmanager
def opened(path: Path) -> Iterator[tuple[Bytes, bytes]]:
    """A log, open, and its first bytes, which are already read: a pipe gives them only once.

    One that was compressed is read decompressed, and UTF-16 as UTF-8. A named pipe that nobody writes to is empty; it
    is not waited for.

    Raises:
        OSError: it cannot be opened or read.
        HcpError: standard input is closed.
        Unreadable: it cannot be decompressed.
    """
    with _opened(path) as (packed, head):
        file, start = unpacked(packed, head, START)
        codec = _UTF_16.get(start[:2])
        unmarked = None if codec else _unmarked(start)
        if codec or unmarked:
            text = _Transcoded(file, codec or unmarked or "")
            yield text, text.of(start[2:] if codec else start)
        else:
            yield file, start


_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""By the mark that PowerShell and others begin a file with."""
_FEWEST_PAIRS = 16


def _unmarked(start: bytes) -> str | None:
    """The encoding of UTF-16 text without such a mark: of its pairs of bytes nearly all have a NUL at the same place,
    and none at the other."""
    pairs = len(start) // 2
    low, high = start[: 2 * pairs : 2].count(0), start[1 : 2 * pairs : 2].count(0)
    if pairs < _FEWEST_PAIRS or min(low, high) or max(low, high) < 0.9 * pairs:
        return None
    return "utf-16-le" if high else "utf-16-be"


class _Transcoded:
    """A file in another encoding, read as UTF-8."""

    def __init__(self, file: Bytes, codec: str) -> None:
        self.file = file
        self.decoder = codecs.getincrementaldecoder(codec)("replace")

    def of(self, block: bytes, is_last: bool = False) -> bytes:
        return self.decoder.decode(block, is_last).encode("utf-8")

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end of the file."""
        while True:
            block = self.file.read(size) or b""
            text = self.of(block, not block)
            if text or not block:
                return text


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Bytes, bytes]]:
    if path is STDIN:
        if sys.stdin is None:
            raise HcpError("found no standard input: it is closed", wanted="a log there", do="pipe one, or name a file")
        yield sys.stdin.buffer, sys.stdin.buffer.read(START)
        return
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(handle, "rb", buffering=0) as file:
        if not stat.S_ISFIFO(os.fstat(handle).st_mode):
            yield file, file.read(START) or b""
            return
        start = file.read(START)  # None: someone writes, but has not written yet
        os.set_blocking(handle, True)
        yield file, (file.read(START) if start is None else start) or b""


def is_log(start: bytes) -> bool:
    """Whether a file that begins so is a log: it has bytes, and they are a text."""
    return bool(start) and is_text(start)


_ROTATED = re.compile(r"(?P<name>.+)\.(?P<number>\d{1,3})")
_DATED = re.compile(r"(?P<name>.+)[.-](?P<date>(?:19|20)\d{6}(?:-\d{6})?)")


def _age(path: Path) -> tuple[str, int, str]:
    """Sorts the parts of a log that was rotated in the order of time.

    They are `job.log.2.gz`, `job.log.1`, `job.log`; or `job.log-20260821`, `job.log`. Of a pod, what its container
    wrote before the present one comes first.
    """
    name = PACKED.sub("", str(path))
    if found := _ROTATED.fullmatch(name):
        return found["name"], -int(found["number"]), ""
    if found := _DATED.fullmatch(name):
        return found["name"], -1, found["date"]
    found = PREVIOUS.fullmatch(name)
    return (found["of"] + found["end"], -1, "") if found else (name, 0, "")


class _Found:
    """What the targets give."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.unread: list[tuple[Path, str]] = []
        self.dumps: list[Path] = []
        self.binary: list[Path] = []

    def add_file(self, path: Path) -> None:
        """A file that was named: a log, or a dump."""
        if path.is_file():
            try:
                with opened(path) as (_, start):
                    if is_dump(path, start):
                        self.dumps.append(path)
                        return
            except (OSError, Unreadable):
                pass  # said when it is read
        self.paths.append(path)

    def add_folder(self, folder: Path) -> None:
        """The texts and dumps below a folder.

        Raises:
            HcpError: it has none, or they are the kernel's.
        """
        before = len(self.paths) + len(self.dumps)
        self.paths += sorted(self._texts_in(folder), key=_age)
        if len(self.paths) + len(self.dumps) == before:
            raise HcpError(
                f"{visible(str(folder))}: no text file in this folder", wanted="logs", do="name the files themselves"
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
                    self.paths += sorted(self._texts_in(path), key=_age)
                elif path.is_file():
                    self.add_file(path)
        if len(self.paths) == before:
            where = ", ".join(visible(folder) for folder in folders) or ". and logs"
            raise HcpError(
                f"{visible(job)}: no such file, and in {where} nothing is named by a job of this id",
                wanted="log files, a folder of logs, or a job's id",
                do="name the folder with its logs too",
            )

    def _texts_in(self, folder: Path) -> list[Path]:
        try:
            root = os.path.realpath(folder)
        except OSError as error:  # the current folder was removed
            self.unread.append((folder, error.strerror or "it cannot be read"))
            return []
        if root.split("/")[1] in _KERNELS:
            raise HcpError(f"{visible(str(folder))}: found files of the kernel's", wanted="a folder of logs")
        texts: list[Path] = []

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
                            else:
                                (texts if is_text(start) else self.binary).append(path)
                    else:
                        self.unread.append((path, "a pipe, a socket or a device"))
                except OSError as error:
                    self.unread.append((path, error.strerror or "it cannot be read"))
                except Unreadable as error:
                    self.unread.append((path, str(error)))
        return texts
