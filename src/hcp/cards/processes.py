"""Runs one program with a time limit and leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

_GRACE_S = 5.0
_TICK_S = 0.1


class Ended(NamedTuple):
    """How a program ended. `status` is None after a timeout; output is text, stderr apart."""

    status: int | None
    stdout: str
    stderr: str
    seconds: float


def run_program(
    arguments: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    on_tick: Callable[[float], None] = lambda seconds: None,
) -> Ended:
    """Runs a program in a new temporary folder and a session of its own; calls `on_tick` with the seconds so far.

    After the time limit, and when this process is interrupted, the program and everything that it started is ended:
    first asked (SIGTERM), then killed. torchrun starts its workers in sessions of their own, so the process tree is
    followed, not the process group.
    """
    started = time.monotonic()
    # Output goes to files, not pipes: a worker that outlives its parent would keep a pipe open, and reading would hang.
    with (
        tempfile.TemporaryDirectory(prefix="hcp-step-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=folder,
            start_new_session=True,
            env=None if environment is None else dict(environment),
        )
        status: int | None = None
        try:
            while status is None:
                try:
                    status = process.wait(_TICK_S)
                except subprocess.TimeoutExpired:
                    seconds = time.monotonic() - started
                    on_tick(seconds)
                    if seconds > timeout_s:
                        break
        finally:
            end_tree(process)
        return Ended(status, _text(out), _text(err), time.monotonic() - started)


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that leads a session, all its descendants, and whatever is left in its process group."""
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
    """The process ids below `pid`, by /proc or else `ps`."""
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
                    # The name in parentheses may hold spaces and parentheses; the parent comes two words after it.
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
    file.seek(0)
    return file.read().decode("utf-8", "replace")
