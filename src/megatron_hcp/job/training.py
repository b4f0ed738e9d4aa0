"""A training as the first task of its job sees it: until every task ended, one failed, or it hangs."""

from __future__ import annotations

import time
from pathlib import Path

from megatron_hcp.job.ends import TaskEnd, read_ends
from megatron_hcp.job.folder import JobFolder
from megatron_hcp.job.spec import JobSpec
from megatron_hcp.job.stall import StallWatch
from megatron_hcp.job.task import JobTask

_LOOK_S = 1.0
_STALL_LOOK_S = 5.0
_SETTLE_S = 4.0
"""After a first failure, other tasks may still say that theirs was before it."""
_ENDS_S = 600.0
"""A node whose daemon died never says that its ranks ended."""
_ABORTED_S = 60.0
_ABORTED, _KILLED = 134, 137


class TrainingRun:
    """`is_over`: nothing more is waited for. `stalled`: why it counts as hung, or "". `ends`: who ended, and how."""

    def __init__(self, spec: JobSpec, task: JobTask, folder: JobFolder) -> None:
        self.spec, self.task, self.folder = spec, task, folder
        self.is_over, self.stalled = False, ""
        self.ends: list[TaskEnd] = []
        self._told = 0
        self._first_end = self._first_failure = self._gives_up = float("inf")
        self._next_look, self._next_stall_look = 0.0, time.monotonic() + _STALL_LOOK_S
        self._watch = None if spec.stall_s is None else StallWatch(self._logs, spec.stall_s)

    @property
    def code(self) -> int:
        """The exit code of the training as a whole."""
        if self.stalled:
            return _ABORTED
        failed = self.failures()
        if failed:
            return failed[0].code or 1
        return 0 if self._is_complete() else _KILLED

    def failures(self) -> list[TaskEnd]:
        """Who failed, in order of time. Ray runs until it is ended: wherever it ends before that, it failed."""
        return [end for end in self.ends if end.code or end.what == "ray"]

    def new_failures(self) -> list[TaskEnd]:
        """Those of the tasks that failed since this was asked last."""
        failed = self.failures()
        new, self._told = failed[self._told :], len(failed)
        return new

    def look(self, now: float, is_asked: bool) -> bool:
        """Looks for what is new; whether the training was just found to hang."""
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_S
        self.finish()
        if self.ends:
            self._first_end = min(self._first_end, now)
        if self.failures():
            self._first_failure = min(self._first_failure, now)
        if self._is_complete() or now > self._gives_up:
            self.is_over = True
        elif not is_asked and not self.stalled:  # while they save, nobody is hurried
            if now > self._first_failure + _SETTLE_S:
                self.is_over = True
            elif now > self._first_end + _ENDS_S:
                self.stalled = f"{self._missing()} of {self.task.tasks} tasks did not end within {_ENDS_S:.0f} s"
                self.is_over = True
            else:
                return self._hangs(now)
        return False

    def finish(self) -> None:
        """Reads once more how the tasks ended."""
        self.ends = read_ends(self.folder.lines("ends"))

    def _hangs(self, now: float) -> bool:
        if self._watch is None or now < self._next_stall_look:
            return False
        self._next_stall_look = now + _STALL_LOOK_S
        self.stalled = self._watch.hangs()
        if self.stalled:
            # Every rank prints its stack and exits; a rank that cannot is ended with the job.
            self._gives_up = now + _ABORTED_S
            self.folder.tell("abort", True)
        return bool(self.stalled)

    def _is_complete(self) -> bool:
        if self.spec.start == "ray":
            return any(end.what == "training" for end in self.ends)
        return self._missing() <= 0

    def _missing(self) -> int:
        return self.task.tasks - len({end.task for end in self.ends if end.what == "training"})

    def _logs(self) -> list[Path]:
        return sorted(self.folder.run.glob(f"train-r{self.task.attempt}-node*.log"))
