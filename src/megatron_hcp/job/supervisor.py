"""One task of a job: it prepares with the others, trains, passes signals on, and says how it ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from megatron_hcp.ground.files import write_whole
from megatron_hcp.job.child import JobProgram, oom_kills
from megatron_hcp.job.ends import end_note
from megatron_hcp.job.folder import JobFolder, wait_until
from megatron_hcp.job.outcome import AGAIN
from megatron_hcp.job.own import own_command
from megatron_hcp.job.programs import LAUNCHERS, JobWords, rank_environment, ray_words
from megatron_hcp.job.spec import JobSpec
from megatron_hcp.job.task import JobTask

NOTE_TICK_S = 1.0
_TICK_S = 0.2
_PREPARED_S = 3600.0
"""Seconds that a task waits for the one that leads; each of its steps has a limit of its own."""


class JobPlace(NamedTuple):
    """Where a job runs: its folder, its nodes by name (as far as Slurm says), and where its checkpoints go."""

    run: Path
    nodes: tuple[str, ...] = ()
    checkpoints: Path | None = None


class AskedError(Exception):
    """The job is to end before it trains."""


class Supervisor:
    """One task of a job. Every task but the first only does its part, and waits for the first to decide."""

    def __init__(self, spec: JobSpec, task: JobTask, place: JobPlace, words: JobWords) -> None:
        self.spec, self.task, self.place = spec, task, place
        self.words = words
        self.folder = JobFolder(place.run, task.attempt)
        self.environment = rank_environment(spec, task)
        self.asked: Literal["", "preempted", "terminated"] = ""
        self.program: JobProgram | None = None
        self._is_aborted = False

    def run(self) -> int:
        """The exit code of this task."""
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self.folder.make()
        try:
            if self.task.speaks_for_its_node:
                self.wait_for("report")
                self.report()
            if self.spec.communication is not None:
                self.wait_for("go")
                self.test_groups()
            self.wait_for("train")
        except AskedError:
            return AGAIN if self.task.in_pod and self.asked else 0  # the first task says why
        self.start()
        code = self.program_ended()
        self.say_end(code)
        if code and not self.folder.is_told("over"):
            wait_until(lambda: self.folder.is_told("over"), 10 * _PREPARED_S, NOTE_TICK_S)
        # Kubernetes judges a job by whichever pod it sees fail first, so all give the job's code.
        return self.folder.told("over") or code if code and self.task.in_pod else code

    def report(self) -> None:
        from megatron_hcp.job.preparing import report_node

        report_node(self.spec, self.folder, self.task, self.place.checkpoints)

    def wait_for(self, note: str) -> None:
        """Waits for what the first task decides.

        Raises:
            AskedError: the job ends before that.
        """

        def is_decided() -> bool:
            self.still()
            return self.folder.is_told(note)

        if not wait_until(is_decided, _PREPARED_S, NOTE_TICK_S):
            raise AskedError

    def still(self) -> None:
        """Returns while the job is to go on.

        Raises:
            AskedError: it is to end.
        """
        if self.asked or self.folder.is_told("over"):
            raise AskedError

    def test_groups(self) -> int:
        """Runs this task's part of the test of the groups, and says how it ended."""
        log = self.folder.log_file("comm", self.task.node_index)
        words = self.words.communication_test(self.spec)
        program = JobProgram(words, log, f"{self.task.number}: ", self.environment, self.spec.start in LAUNCHERS)
        while program.code() is None:
            if self.asked:
                program.kill()
            time.sleep(_TICK_S)
        program.close()
        code = program.code() or 0
        self.folder.add_line("tested", self.task.node_index, {"task": self.task.number, "code": code})
        return code

    def start(self) -> None:
        """Starts what this task contributes to the training."""
        kind = {"ray": "ray", "verify": "verify"}.get(self.spec.start, "train")
        log, plain = self.folder.log_file(kind, self.task.node_index), None
        if self.spec.start == "ray":
            words = ray_words(self.spec, self.task, self.environment)
        elif self.spec.start == "verify":
            words = own_command(*self.words.training())
            log, plain = (self.place.run / f"verify-node{self.task.node_index}.{end}" for end in ("log", "json"))
        else:
            words = self.words.training()
        self.program = self.launch(words, log, plain)

    def launch(self, words: Sequence[str], log: Path, plain: Path | None = None) -> JobProgram | None:
        """Starts a program; None if it cannot be started, which its log says."""
        self._oom = oom_kills()
        try:
            return JobProgram(
                words, log, f"{self.task.number}: ", self.environment, self.spec.start in LAUNCHERS, plain
            )
        except OSError as error:
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{self.task.number}: hcp: cannot start {words[0]}: {error.strerror}\n")
            return None

    def program_ended(self) -> int:
        """Waits until this task's program has ended, or all tasks are to end; its exit code."""
        program, next_look = self.program, 0.0
        if program is None:
            return 127
        while (code := program.code()) is None:
            if time.monotonic() > next_look:
                next_look = time.monotonic() + NOTE_TICK_S
                self.obey(program)
            time.sleep(_TICK_S)
        program.close()
        return 0 if self.spec.start == "ray" and self.folder.is_told("over") else code

    def obey(self, program: JobProgram) -> None:
        """Does what the first task has decided for all."""
        if self.folder.is_told("over"):
            program.kill()
        elif self.spec.stall_s is not None and not self._is_aborted and self.folder.is_told("abort"):
            self._is_aborted = True
            program.ask(signal.SIGABRT)

    def say_end(self, code: int) -> None:
        what = "ray" if self.spec.start == "ray" else "training"
        note = end_note(self.task.number, self.task.node, code, oom_kills() > self._oom, what)
        with suppress(OSError):
            self.folder.add_line("ends", self.task.node_index, note)

    def on_asked(self) -> None:
        """Called when a signal asks the job to save and end."""
        if self.program is not None and self.spec.start != "ray":
            self.program.ask(signal.SIGTERM)

    def _on_signal(self, number: int, _frame: object) -> None:
        if not self.asked:
            self.asked = "preempted" if number == signal.SIGUSR1 or self.task.in_pod else "terminated"
        self.on_asked()


def write_text(path: Path, text: str) -> None:
    """Writes a file of the job's folder; a full disk must not end the job."""
    with suppress(OSError):
        write_whole(path, text)
