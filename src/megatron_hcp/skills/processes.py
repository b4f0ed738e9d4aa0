"""Runs a program with a time limit and leaves no process behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.skills import guard

_GRACE_S = 5.0
_TICK_S = 0.1
MAX_OUTPUT = 20_000_000
"""Bytes that a program may print to either stream; a larger log would be a fault of the program, and fill the disk."""
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


class Ended(NamedTuple):
    """How a program ended. `status` is None if it was stopped for running too long or printing too much."""

    status: int | None
    stdout: str
    stderr: str
    seconds: float
    printed_too_much: bool = False


class _Room(NamedTuple):
    """What a program gets: a folder, and files for its output. Not pipes, because a worker that outlives its parent
    would keep a pipe open, and reading it would hang."""

    folder: str
    out: IO[bytes]
    err: IO[bytes]


def run_program(
    arguments: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    on_tick: Callable[[float], None] = lambda seconds: None,
) -> Ended:
    """Runs a program in a new temporary folder and in its own session; calls `on_tick` with the seconds so far.

    After the time limit, or when this process is interrupted, the program and everything that it started is ended:
    first with SIGTERM, then with SIGKILL. torchrun starts its workers in separate sessions, so the process tree is
    followed, not the process group; on Linux, processes that leave the tree become children of this one. If this
    process is killed, a guard ends everything with the step's mark in its environment.

    Raises:
        HcpError: there is no room for temporary files.
        OSError: the program cannot be started.
    """
    started = time.monotonic()
    mark = f"{uuid.uuid4()}:"
    inherited = dict(os.environ if environment is None else environment)
    inherited[guard.VARIABLE] = inherited.get(guard.VARIABLE, "") + mark
    with _room() as room, _adopting() as children_before, _guarded(mark, room.folder) as watch:
        process: subprocess.Popen[bytes] | None = None
        status, flooded = None, False
        try:
            process = subprocess.Popen(
                list(arguments),
                stdin=subprocess.DEVNULL,
                stdout=room.out,
                stderr=room.err,
                cwd=room.folder,
                start_new_session=True,
                env=inherited,
            )
            assert watch.stdin is not None
            with contextlib.suppress(OSError):
                watch.stdin.write(b"%d\n" % process.pid)
            while status is None and not flooded:
                try:
                    status = process.wait(_TICK_S)
                except subprocess.TimeoutExpired:
                    seconds = time.monotonic() - started
                    on_tick(seconds)
                    if seconds > timeout_s:
                        break
                flooded = any(os.fstat(file.fileno()).st_size > MAX_OUTPUT for file in (room.out, room.err))
        finally:
            if process is not None:
                end_tree(process)
            _end_strays(children_before | {watch.pid})
        output = _text(room.out), _text(room.err)
        return Ended(None if flooded else status, *output, time.monotonic() - started, flooded)


@contextlib.contextmanager
def _room() -> Iterator[_Room]:
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hcp-step-", ignore_cleanup_errors=True))
            room = _Room(folder, *(stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)))
        except OSError as error:
            raise HcpError(
                f"found no room for temporary files ({error.strerror or error})",
                wanted="a folder to run the step in",
                do="set TMPDIR to a writable one",
            ) from None
        yield room


@contextlib.contextmanager
def _guarded(mark: str, folder: str) -> Iterator[subprocess.Popen[bytes]]:
    """A guard that acts if this process is killed; if all goes well, it is ended first."""
    watch = subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, mark, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        start_new_session=True,
    )
    try:
        yield watch
    finally:
        watch.kill()
        watch.communicate()


@contextlib.contextmanager
def _adopting() -> Iterator[set[int]]:
    """On Linux, makes orphaned descendants become children of this process; returns the children it has already."""
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    before = ctypes.c_int(0)
    if libc is not None:
        libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield _children()
    finally:
        if libc is not None:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def _children() -> set[int]:
    """The children of this process if it adopts orphans; otherwise none."""
    if sys.platform != "linux":
        return set()
    return {child for child, parent in _parents() if parent == os.getpid()}


def _end_strays(ours: set[int]) -> None:
    """Ends processes that left a step's process tree and so became children of this process."""
    end = time.monotonic() + _GRACE_S
    while time.monotonic() < end:
        adopted = _children() - ours
        strays = adopted.union(*map(descendants, adopted))
        for pid in strays:
            _signal(pid, signal.SIGKILL)
        for pid in adopted:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not strays:
            return
        time.sleep(0.02)


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Ends a session leader, all its descendants, and whatever is left in its process group."""
    family = descendants(process.pid) if process.poll() is None else []
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pid in family:
        _signal(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """The process ids below `pid`, from /proc or else `ps`."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _parents() -> list[tuple[int, int]]:
    proc = Path("/proc")
    if proc.is_dir():
        pairs = []
        for entry in proc.iterdir():
            if entry.name.isdecimal():
                try:
                    # The name in parentheses may contain spaces and parentheses; the parent is two words after it.
                    words = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                pairs.append((int(entry.name), int(words[1])))
        return pairs
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True).stdout
    return [(int(line.split()[0]), int(line.split()[1])) for line in listing.splitlines() if line.split()]


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _text(file: IO[bytes]) -> str:
    """The output, or only its end if it is too large."""
    file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_OUTPUT))
    return file.read(MAX_OUTPUT).decode("utf-8", "replace")
