"""A program that a task starts: its output goes to a log, each line with the task's number; signals can reach it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_LONGEST = 1 << 20
"""Bytes of a line that are written in one piece."""


class JobProgram:
    """A running program of a task.

    A launcher (`is_launcher`) would end its ranks at once on TERM, saved or not: it ignores that signal, and `ask`
    gives it to the ranks, which save and exit; then the launcher exits.
    """

    def __init__(
        self,
        words: Sequence[str],
        log: Path,
        label: str,
        environment: Mapping[str, str],
        is_launcher: bool = False,
        plain: Path | None = None,
    ) -> None:
        self.is_launcher = is_launcher
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        output = None if plain is None else plain.open("wb")  # its copy is closed below
        ignored = (signal.SIGUSR1, signal.SIGTERM) if is_launcher else (signal.SIGUSR1,)
        try:
            self.process = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if output is None else output,
                stderr=subprocess.STDOUT if output is None else subprocess.PIPE,
                env=dict(environment),
                preexec_fn=lambda: _ignore(ignored),
            )
        except BaseException:
            os.close(self._log)
            raise
        finally:
            if output is not None:
                output.close()
        pipe = self.process.stdout or self.process.stderr
        self._pump = threading.Thread(target=self._copy, args=(pipe, label.encode()), daemon=True)
        self._pump.start()

    def code(self) -> int | None:
        """Its exit code as Python gives it (negative for a signal); None while it runs."""
        return self.process.poll()

    def ask(self, number: int) -> None:
        """Sends a signal to the ranks."""
        for pid in _children(self.process.pid) if self.is_launcher else (self.process.pid,):
            with suppress(OSError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Ends it at once, with the ranks that it started."""
        for pid in (*_children(self.process.pid), self.process.pid):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Waits for its last lines; what it left running may hold the pipe, so not for long."""
        self._pump.join(10)
        with suppress(OSError):
            os.close(self._log)

    def _copy(self, pipe: object, label: bytes) -> None:
        while line := pipe.readline(_LONGEST):  # type: ignore[attr-defined]
            with suppress(OSError):  # a full disk must not stop the training
                os.write(self._log, label + line)


def _ignore(numbers: Sequence[int]) -> None:
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGABRT):
        signal.signal(number, signal.SIG_IGN if number in numbers else signal.SIG_DFL)


def _children(pid: int) -> tuple[int, ...]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return tuple(map(int, file.read(100_000).split()))
    except (OSError, ValueError):
        return ()


def oom_kills() -> int:
    """How many processes of this task's control group the kernel has killed for memory; 0 where it is not shown."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file.read(20_000).splitlines()]
    except OSError:
        return 0
    found = 0
    for _, controllers, path in groups:
        if controllers == "":
            found = max(found, _counted(f"/sys/fs/cgroup{path}/memory.events"))
        elif "memory" in controllers.split(","):
            found = max(found, _counted(f"/sys/fs/cgroup/memory{path}/memory.oom_control"))
    return found


def _counted(name: str) -> int:
    try:
        with open(name, encoding="ascii") as file:
            pairs = (line.split() for line in file.read(5_000).splitlines())
            return next((int(pair[1]) for pair in pairs if pair and pair[0] == "oom_kill"), 0)
    except (OSError, ValueError, IndexError):
        return 0
