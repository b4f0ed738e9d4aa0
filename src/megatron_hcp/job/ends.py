"""How the tasks of a job ended: each says so in the job's folder, and the one that leads decides."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from megatron_hcp.job.exits import RankExit

SIGNALLED = 128


class TaskEnd(NamedTuple):
    """One program's end. `code` as in a shell; `at`: when, in seconds; `what`: "training" or "ray"."""

    task: int
    node: str
    code: int
    at: float
    oom: bool = False
    what: str = "training"

    @property
    def how(self) -> str:
        """As srun says it."""
        name = signal.strsignal(self.code - SIGNALLED) if self.code > SIGNALLED else None
        return name or f"Exited with exit code {self.code}"


def shell_code(code: int) -> int:
    """An exit code as a shell gives it, from Python's, which is negative for a signal."""
    return code if code >= 0 else SIGNALLED - code


def end_note(task: int, node: str, code: int, oom: bool, what: str = "training") -> dict[str, Any]:
    return TaskEnd(task, node, shell_code(code), time.time(), oom, what)._asdict()


def read_ends(notes: Iterable[Any]) -> list[TaskEnd]:
    """The ends in order of time; what is no such note is skipped."""
    found = []
    for note in notes:
        try:
            found.append(TaskEnd(**note))
        except TypeError:
            continue
    return sorted(found, key=lambda end: end.at)


def first_failure(ends: Iterable[TaskEnd], tasks_are_ranks: bool) -> RankExit | None:
    """The program that failed first."""
    failed = next((end for end in ends if end.code), None)
    if failed is None:
        return None
    return RankExit(failed.code, str(failed.task) if tasks_are_ranks else "", failed.node)
