"""The first task of a job: it decides whether the job trains, watches it, and gives the verdict."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from megatron_hcp.ground.child import run_child
from megatron_hcp.job.child import JobProgram, oom_kills
from megatron_hcp.job.ends import end_note, read_ends
from megatron_hcp.job.events import Events, complain
from megatron_hcp.job.exits import launcher_log, lost_task
from megatron_hcp.job.folder import wait_until
from megatron_hcp.job.lock import RENEW_S, CheckpointLock
from megatron_hcp.job.preparing import Preparing, StoppedError
from megatron_hcp.job.programs import JobWords
from megatron_hcp.job.progress import checkpoint_mark
from megatron_hcp.job.spec import JobSpec
from megatron_hcp.job.supervisor import AskedError, JobPlace, Supervisor, write_text
from megatron_hcp.job.task import JobTask
from megatron_hcp.job.training import TrainingRun
from megatron_hcp.job.verdict import JobAttempt, Verdict

_TESTED_S = 900.0
_RAY_S = 300.0
_KILLED = 128 + signal.SIGKILL


class Leader(Supervisor):
    """The first task."""

    def __init__(self, spec: JobSpec, task: JobTask, place: JobPlace, words: JobWords) -> None:
        super().__init__(spec, task, place, words)
        self.events = Events(task)
        self.preparation = Preparing(spec, self.folder, self.events, self.words.launch, self.still)
        self.attempt = JobAttempt(spec, task, self.folder, place, begun=time.monotonic())
        self.lock = CheckpointLock(place.checkpoints, task.job) if place.checkpoints is not None else None
        self.driver: JobProgram | None = None
        self._is_locked = self._has_said_end = self._has_said_ray = False
        self._renewed = 0.0

    def run(self) -> int:
        """The exit code of the job."""
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self.folder.make()
        where = {"nodes": list(self.place.nodes), "gpus_per_node": self.spec.gpus_per_node}
        started = self.events.say("start", start=self.spec.start, **where)
        with open(self.folder.run / "events.log", "a", encoding="utf-8") as kept:
            kept.write(started + "\n")  # the job's own triage reads the folder alone: are the tasks of its logs ranks?
        self.attempt.mark = checkpoint_mark(self.place.checkpoints)
        return self._conclude(self._attempt())

    def _attempt(self) -> Verdict:
        try:
            self._prepare()
            training = self._train()
        except AskedError:
            waits = self.preparation.still_waits_for(self.place.nodes)
            return self.attempt.verdict(self.preparation.phase, 1, self.asked, stopped=waits)
        except StoppedError as error:
            self.events.say("stopped", phase=self.preparation.phase, reason=error.reason)
            phase = self.preparation.phase
            return self.attempt.verdict(phase, 1, self.asked, stopped=error.reason, unfit=error.unfit)
        training.finish()
        return self.attempt.verdict(self.preparation.phase, training.code, self.asked, training=training)

    def _conclude(self, verdict: Verdict) -> int:
        code = verdict.exit_code
        if self.task.in_pod:  # no script gives the last word
            code = verdict.pod_exit_code
            verdict = Verdict(*({**data, "final": True} for data in verdict))
            write_text(self.place.run / "verdict.json", json.dumps(verdict.data) + "\n")
        verdict.write(self.place.run)
        if self._is_locked and self.lock is not None:
            self.lock.release()
        with suppress(OSError):
            self.folder.tell("over", code)
        for program in (self.driver, self.program):
            if program is not None and program.code() is None:
                program.kill()
        return code

    def _prepare(self) -> None:
        preparation, spec = self.preparation, self.spec
        if spec.requeue is not None and self.task.attempt > spec.requeue:
            # Slurm itself also requeues jobs (preemption, a lost node); the limit counts every requeue.
            raise StoppedError("requeued more often than allowed")
        if spec.check is not None:
            preparation.enter(0, "check the launch")
            preparation.check_launch("in the launch")
        preparation.enter(1, "compare the nodes")
        self.folder.tell("report", True)
        self.report()
        preparation.compare_nodes(self.place.nodes)
        if not self.place.nodes:  # Slurm names them before; of pods, only their reports do
            self.attempt.place = self.place._replace(nodes=tuple(preparation.nodes))
        preparation.judge_health()
        self._claim_checkpoints()
        if spec.communication is not None:
            preparation.enter(2, "test the communication of each level")
            self.folder.tell("go", True)
            self._test_all_groups()
        preparation.enter(3, "verify" if spec.start == "verify" else "train")
        self.folder.tell("train", True)

    def _claim_checkpoints(self) -> None:
        if self.lock is None:
            return
        try:
            holder = self.lock.take()
        except OSError as error:
            raise StoppedError(f"cannot write to {self.lock.path.parent}: {error.strerror}") from None
        if holder:
            raise StoppedError(
                f"job {holder} writes checkpoints to {self.lock.path.parent}; give each job a folder of its own"
            )
        self._is_locked = True

    def _test_all_groups(self) -> None:
        self.test_groups()
        logs = sorted(self.place.run.glob(f"comm-r{self.task.attempt}-node*.log"))
        own = self.folder.log_file("comm", self.task.node_index)

        def all_tested() -> bool:
            self.still()
            return len(list(self.folder.lines("tested"))) >= self.task.tasks

        in_time = wait_until(all_tested, _TESTED_S)
        said = own.read_text(encoding="utf-8", errors="replace") if own.exists() else ""
        text = "".join(line.partition(": ")[2] for line in said.splitlines(True))
        write_text(self.place.run / "comm.txt", text)
        print(text, end="", flush=True)
        if not in_time:
            raise StoppedError(f"the test of the communication did not end within {_TESTED_S:.0f} s")
        if any(note["code"] for note in self.folder.lines("tested")):
            logs = sorted(self.place.run.glob(f"comm-r{self.task.attempt}-node*.log"))
            why = _why_slow(logs) or self.attempt.cause_of_first_failure()
            raise StoppedError(f"a communication group failed its test: {why}".rstrip(": "))

    def _train(self) -> TrainingRun:
        self.start()
        if self.spec.start == "ray":
            self._start_driver()
        training = TrainingRun(self.spec, self.task, self.folder)
        while not training.is_over:
            self._say_own_end()
            now = time.monotonic()
            is_hung, failed = training.look(now, bool(self.asked)), training.new_failures()
            complain("\n".join(f"hcp: {end.node}: task {end.task}: {end.how}" for end in failed))
            if is_hung:
                self.events.say("stalled", phase=self.preparation.phase, reason=training.stalled)
                for program in (self.driver, self.program):
                    if program is not None:
                        program.ask(signal.SIGABRT)
            if self._is_locked and self.lock is not None and now > self._renewed + RENEW_S:
                self._renewed = now
                self.lock.renew()
            if self.asked == "terminated" and lost_task(
                launcher_log(self.place.run, self.task.attempt), self.spec.tasks_are_ranks
            ):
                break  # without that task the others cannot save
            time.sleep(0.2)
        return training

    def _say_own_end(self) -> None:
        """Says once how this task's own program ended."""
        program = self.driver or self.program
        code = 127 if program is None else program.code()
        if code is not None and not self._has_said_end:
            self._has_said_end = True
            if program is not None:
                program.close()
            note = end_note(self.task.number, self.task.node, code, oom_kills() > self._oom)
            self.folder.add_line("ends", self.task.node_index, note)
        ray = self.program.code() if self.driver is not None and self.program is not None else None
        if ray is not None and not self._has_said_ray:
            self._has_said_ray = True
            self.say_end(ray)

    def _start_driver(self) -> None:
        """Starts the program that drives Ray's workers, once Ray runs on every node.

        Raises:
            StoppedError: Ray does not start.
        """

        def is_up() -> bool:
            self.still()
            if self.program is None or self.program.code() is not None:  # the head: no other task speaks for it
                self.say_end(self.program_ended())
            if any(end.what == "ray" for end in read_ends(self.folder.lines("ends"))):
                return True
            with suppress(OSError):
                done = run_child(["ray", "status"], timeout_s=60)
                return done.stdout.count(" node_") >= self.spec.nodes
            return False

        self.environment = {**self.environment, "RAY_ADDRESS": self._ray_address()}
        os.environ["RAY_ADDRESS"] = self._ray_address()
        in_time = wait_until(is_up, _RAY_S, 2.0)
        dead = [end for end in read_ends(self.folder.lines("ends")) if end.what == "ray"]
        if dead:
            why = self.attempt.cause_of_first_failure().removeprefix(f"on {dead[0].node}: ")
            raise StoppedError(f"Ray on {dead[0].node} exited with {dead[0].code}: {why}".rstrip(": "))
        if not in_time:
            raise StoppedError("Ray did not start on every node; see the ray logs")
        self.driver = self.launch(self.words.training(), self.folder.log_file("train", self.task.node_index))

    def _ray_address(self) -> str:
        return f"{self.environment['MASTER_ADDR']}:{self.environment['MASTER_PORT']}"

    def on_asked(self) -> None:
        # verl saves at its own interval (trainer.save_freq) and cannot be asked to save: its driver just ends.
        asked = self.asked or "terminated"
        self.events.say("signal", what=f"{asked}: the trainer was asked to save and exit")
        if self.program is not None:
            self.attempt.verdict(self.preparation.phase, _KILLED, asked).write(self.place.run)
        if self.driver is not None:
            self.driver.ask(signal.SIGTERM)
        else:
            super().on_asked()


def _why_slow(logs: Sequence[Path]) -> str:
    """What the ranks say about the test of the groups that failed: the first line that is no level's result."""
    for log in logs:
        with suppress(OSError):
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
                said = line.partition(": ")[2]
                if said.startswith(("comm_levels", "rank ")):
                    return said
    return ""
