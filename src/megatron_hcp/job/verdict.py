"""The verdict on one attempt of a job (`hcp.verdict/2`), from what its tasks, its logs and its checkpoints say."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from megatron_hcp.job.ends import first_failure
from megatron_hcp.job.events import one_line
from megatron_hcp.job.exits import (
    RankExit,
    Suspicion,
    first_exit,
    log_tails,
    logs_of,
    lost_node,
    lost_task,
    node_at_fault,
    suspicion,
)
from megatron_hcp.job.folder import JobFolder
from megatron_hcp.job.outcome import VALIDATION_CODES, AttemptEnd, Outcome, decide, pod_exit_code
from megatron_hcp.job.own import run_hcp
from megatron_hcp.job.progress import Steps, checkpoint_mark, saved_in, saved_iteration, steps_in
from megatron_hcp.job.spec import JobSpec
from megatron_hcp.job.supervisor import JobPlace, write_text
from megatron_hcp.job.task import JobTask
from megatron_hcp.job.training import TrainingRun

_TRIAGE_S = 120.0
_EVIDENCE = "check.json nodes.txt health.txt facts.txt ranks.txt ranks.log comm.txt triage.json".split()


class Verdict(NamedTuple):
    """What the attempt was, and what it was if Slurm says that it preempted the job: no task can see that."""

    data: dict[str, Any]
    if_preempted: dict[str, Any]

    @property
    def exit_code(self) -> int:
        code: int = self.data["exit_code"]
        return code

    @property
    def pod_exit_code(self) -> int:
        return pod_exit_code(self.exit_code, self.data["next"] == "requeue")

    def write(self, run: Path) -> None:
        attempt = self.data["attempt"]
        write_text(run / f"verdict-r{attempt}.preempted.json", json.dumps(self.if_preempted) + "\n")
        write_text(run / f"verdict-r{attempt}.json", json.dumps(self.data) + "\n")


@dataclass
class JobAttempt:
    """One attempt of a job; `mark`: what its checkpoints were at its start."""

    spec: JobSpec
    task: JobTask
    folder: JobFolder
    place: JobPlace
    begun: float
    mark: int = 0

    def verdict(
        self,
        phase: int,
        code: int,
        asked: str,
        *,
        stopped: str = "",
        unfit: Sequence[str] = (),
        training: TrainingRun | None = None,
    ) -> Verdict:
        """What this attempt was, and what comes next. Without `training`, it is not over yet, or never began."""
        run, attempt = self.place.run, self.task.attempt
        launcher_log, logs = logs_of(run, attempt, self.place.nodes)
        lost = lost_task(launcher_log, self.spec.tasks_are_ranks) if asked == "terminated" else None
        if lost is not None and training is not None:
            asked, code = "", code or lost.code  # srun ended the step because a task was gone: nobody else asked for it
        ended_badly = asked == "terminated" or (code != 0 and not asked)
        tails = list(log_tails(run, attempt))
        steps = steps_in(tails)
        has_failed = training is not None and code != 0 and not asked
        found = self._triage() if has_failed else None
        first = (lost or _first(logs, training, self.spec, found)) if has_failed else None
        ended = AttemptEnd(
            phase=phase,
            code=code,
            asked=asked,
            stopped=stopped,
            first=first,
            suspicion=suspicion(logs) if has_failed else Suspicion(),
            attempt=attempt,
            max_requeues=self.spec.requeue,
            has_progress=checkpoint_mark(self.place.checkpoints) != self.mark or saved_in(tails),
            unfit=tuple(unfit),
            stalled=training.stalled if training is not None else "",
            at_fault=node_at_fault(run, self.place.nodes) if has_failed else "",
            finished=self._is_finished(steps),
            all_saved=0 < steps.of <= saved_iteration(self.place.checkpoints),
            steps=str(steps) if self.spec.start != "verify" else "",
            cause=_cause(training, found, first),
            # With --no-kill, the training goes on without the node, and may end well.
            lost_node=lost_node(launcher_log) if ended_badly else "",
            in_pod=self.task.in_pod,
            by_ft_launcher=self.spec.start == "ft_launcher",
        )
        return Verdict(*(self._json(phase, decide(ended._replace(is_preempted=is_so))) for is_so in (False, True)))

    def _is_finished(self, steps: Steps) -> bool | None:
        """Whether all iterations are done; an attempt that found nothing left to do counts none of its own."""
        if self.spec.start == "verify":
            return True
        if steps.finished is None:
            of = max((steps_in(log_tails(self.place.run, number)).of for number in range(self.task.attempt)), default=0)
            return True if 0 < of <= saved_iteration(self.place.checkpoints) else None
        return steps.finished

    def cause_of_first_failure(self) -> str:
        """What the logs give as the cause of the first failure, and on which rank and node; "" if nothing."""
        found = self._triage()
        if found is None:
            return ""
        rank = "" if found["rank"] is None else f"rank {found['rank']}"
        node = "" if found["node"] is None else f"on {found['node']}"
        return ": ".join(filter(None, (f"{rank} {node}".strip(), str(found["cause"]))))

    def _triage(self) -> dict[str, Any] | None:
        """The first failure that `hcp triage` finds in the job's folder; its whole report is kept there."""
        try:
            done = run_hcp(["triage", "--format", "json", str(self.place.run)], _TRIAGE_S)
            found: dict[str, Any] | None = json.loads(done.stdout)["first_failure"]
            if found is not None:
                found = {name: found[name] for name in ("signature", "kind", "cause", "rank", "node")}
        except (OSError, ValueError, KeyError, TypeError):
            return None
        write_text(self.place.run / "triage.json", done.stdout)
        return found

    def _json(self, phase: int, outcome: Outcome) -> dict[str, Any]:
        nodes = list(self.place.nodes) or [self.task.node]
        return {
            "schema": "hcp.verdict/2",
            "job": self.task.job,
            "attempt": self.task.attempt,
            "final": False,
            "status": outcome.status,
            "phase": phase,
            "exit_code": outcome.exit_code,
            "next": outcome.next,
            "reason": one_line(outcome.reason),
            "exclude": list(outcome.exclude),
            "seconds": round(time.monotonic() - self.begun),
            "nodes": nodes,
            "evidence": [name for name in _EVIDENCE if _has_text(self.place.run / name)],
        }


def _has_text(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _first(
    logs: Sequence[tuple[str, str]], training: TrainingRun | None, spec: JobSpec, found: dict[str, Any] | None
) -> RankExit | None:
    """Who failed first: the rank that triage names, else whom a launcher names, else whose program ended first.

    Ranks that wait for one that failed may end before it does. With Ray only the node is known: its tasks are no ranks.
    `found`: the first failure by `hcp triage`.
    """
    if training is None:
        return None
    ended_first = first_failure(training.failures(), spec.tasks_are_ranks)
    if spec.start == "ray":
        return ended_first
    first = first_exit("", logs) or ended_first
    rank, node = (found["rank"], found["node"]) if found is not None else (None, None)
    if first is None or first.code in VALIDATION_CODES or not isinstance(rank, int) or not isinstance(node, str):
        return first
    own = [end.code for end in training.failures() if spec.tasks_are_ranks and end.task == rank]
    return RankExit(own[0] if own else first.code, str(rank), node)


def _cause(training: TrainingRun | None, found: dict[str, Any] | None, first: RankExit | None) -> str:
    """Why it failed: out of memory if the kernel says so, else the cause that the logs give."""
    failures = training.failures() if training is not None else []
    if killed := next((end for end in failures if end.oom), None):
        return f"the kernel killed a process on {killed.node} that used more memory than the job may"
    if ray := next((end for end in failures if end.what == "ray"), None):
        why = f": {found['cause']}" if found is not None and found["signature"] == "ray-process" else ""
        return f"Ray on {ray.node} exited with {ray.code}{why}"
    if found is None or found["signature"] == "srun-task" or found["kind"] == "report":
        return ""
    rank = found["rank"]
    is_said = rank is None or (first is not None and first.ranks == str(rank))
    return ("" if is_said else f"rank {rank}: ") + str(found["cause"])
