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
from megatron_hcp.triage.line import read_line
from megatron_hcp.triage.names import job_id
from megatron_hcp.triage.scan import Bytes

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
    return Logs(tuple(once.values()), tuple(found.unread), tuple(dict.fromkeys(found.dumps)))


@contextmanager
def opened(path: Path) -> Iterator[tuple[Bytes, bytes]]:
    """A log, open, and its first bytes, which are already read: a pipe gives them only once. UTF-16 is read as UTF-8.

    A named pipe that nobody writes to is empty; it is not waited for.

    Raises:
        OSError: it cannot be opened or read.
        HcpError: standard input is closed.
    """
    with _opened(path) as (file, start):
        codec = _UTF_16.get(start[:2])
        if codec is None:
            yield file, start
        else:
            text = _Transcoded(file, codec)
            yield text, text.of(start[2:])


_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""By the mark that PowerShell and others begin a file with."""


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


_LONGEST_LEAD = 80
_FEWEST_LINES = 3
_LEAD = re.compile(
    rb"(?i)(?!.*(?:loss|step|iter|epoch|err|exc|fail|fatal|warn|assert|kill|abort|signal|cuda|nccl|nvrm|xid|srun|slurm))"
    rb"[\w\s.:,/@|\[\]()<>+*#~-]+"
)
"""What may be a lead: nothing that a training or a fault says, which every line may repeat too."""


def without_lead(file: Bytes, start: bytes) -> tuple[Bytes, bytes]:
    """A log without the indent or the label that stands before each of its lines, if it has one.

    People quote and indent what they paste, and collectors of logs write a host, a container or a time. What the
    prefixes of `megatron_hcp.triage.line` tell stays.
    """
    ended = start.split(b"\n")[: -1 if len(start) >= _START else None]
    lines = [line[:_LONGEST_LEAD] for line in ended if len(line.strip()) > 2]
    if not lines:
        return file, start
    if len(lines) < _FEWEST_LINES:  # too few to tell a label from a text: an indent or a mark of a quotation only
        lines = [line[: len(line) - len(line.lstrip(b"> \t"))] for line in lines]
    shapes = [re.sub(rb"\d+", b"0", line) for line in lines]
    first, last = min(shapes), max(shapes)
    same = next((at for at, (one, other) in enumerate(zip(first, last)) if one != other), min(map(len, shapes)))
    shape = first[:same].rstrip(re.sub(rb"\s", b"", first)) if same else b""
    found = re.match(_pattern_of(shape), lines[0])
    lead = found[0] if found else b""
    for cut in (0, *(space.end() for space in re.finditer(rb"\s+", lead))):
        rests = (lead[cut:] + b"x", lead[cut:] + b"NCCL WARN x")  # NCCL's prefix is known by the name behind it
        if any(read_line(rest).body != rest.decode("utf-8", "replace") for rest in rests):
            lead = lead[:cut]  # from here on it is known, and says something
            break
    return (_Unlabelled(file, start, lead), b"") if _LEAD.fullmatch(lead) else (file, start)


def _pattern_of(lead: bytes) -> bytes:
    return re.sub(rb"\d+", rb"\\d+", re.escape(lead))


class _Unlabelled:
    """A file that is read without what its lines begin with; `start` was read of it before."""

    def __init__(self, file: Bytes, start: bytes, lead: bytes) -> None:
        self.file, self.kept = file, start
        self.lead = re.compile(rb"(?m)^" + _pattern_of(lead))
        self.is_within = False
        """Whether what was given last ended within a line."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end of the file."""
        while True:
            block = self.file.read(size) or b""
            text = self.kept + block
            begun = len(text) - text.rfind(b"\n") - 1 if block else 0
            cut = len(text) - (begun if begun <= 2 * _LONGEST_LEAD else 0)  # a line that has only begun waits
            self.kept, text = text[cut:], text[:cut]
            if text or not block:
                break
        head = b""
        if self.is_within:
            head, end, text = text.partition(b"\n")
            head += end
        given = head + self.lead.sub(b"", text)
        self.is_within = bool(given) and not given.endswith(b"\n")
        return given


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
                    self.paths += sorted(self._texts_in(path))
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
