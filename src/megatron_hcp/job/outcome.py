"""How a job's attempt ended, and what to do next."""

from __future__ import annotations

import re
import signal
from typing import Literal, NamedTuple

from megatron_hcp.job.exits import RankExit, Suspicion

_RESUME_ELSEWHERE, _FAILED_VALIDATION = 16, 17
"""megatron/core/rerun_state_machine.py: EXIT_CODE_RESUME_TO_DISAMBIGUATE, EXIT_CODE_FAILED_ON_RESULT_VALIDATION."""
_NO_RESTART = 93
"""nvidia_resiliency_ext/fault_tolerance/utils.py: DEFAULT_NO_RESTART_EXIT_CODE, of releases after 0.6."""
VALIDATION_CODES = (_RESUME_ELSEWHERE, _FAILED_VALIDATION)
_KILLED = 128 + signal.SIGKILL
_NO_PROGRESS = "no checkpoint was written in this attempt, so it would end the same way again"
_TRAINING = 3
"""The training phase."""


Status = Literal["completed", "ended-early", "undecided", "preempted", "failed", "terminated", "stopped"]


class AttemptEnd(NamedTuple):
    """What is known about an attempt when its script ends.

    `code`: the exit code of the last phase. `asked`: the signal that the script itself got: "preempted" (USR1, sent
    before the job's end), "terminated" (TERM), or "". `stopped`: why the job's own checks ended it, or "".
    `first`: the rank that failed first, if a launcher names it. `is_preempted`: Slurm preempted this attempt.
    `unfit`: nodes that failed their health checks. `stalled`: why the watchdog ended the training, or "".
    `at_fault`: the node whose hardware is at fault according to the logs, or "". `max_requeues`: None if the job is
    never requeued. `has_progress`: a checkpoint was written in this attempt. `finished`: whether the training did all
    of its iterations; None if nothing says so. `all_saved`: a checkpoint holds the last of them. `steps`: how far it
    got, in words. `cause`: what the logs give as the reason of a failure, or "".
    `lost_node`: Slurm's reason if it ended the job for a failed node, or "". `in_pod`: it ran in Kubernetes.
    `by_ft_launcher`: that started the ranks; its own exit code may say that no restart would help.
    """

    phase: int
    code: int
    asked: str = ""
    stopped: str = ""
    first: RankExit | None = None
    suspicion: Suspicion = Suspicion()
    is_preempted: bool = False
    attempt: int = 0
    max_requeues: int | None = None
    has_progress: bool = False
    unfit: tuple[str, ...] = ()
    stalled: str = ""
    at_fault: str = ""
    finished: bool | None = True
    all_saved: bool = False
    steps: str = ""
    cause: str = ""
    lost_node: str = ""
    in_pod: bool = False
    by_ft_launcher: bool = False


class Outcome(NamedTuple):
    """`exit_code`: the failed rank's own if known. `exclude`: nodes to exclude from the next attempt."""

    status: Status
    next: Literal["none", "requeue"]
    exit_code: int
    reason: str
    exclude: tuple[str, ...] = ()


def decide(ended: AttemptEnd) -> Outcome:
    """The outcome of an attempt, and what comes next.

    What Slurm did is checked first: it sends TERM to the job's steps, so an interrupted check looks like a failed one,
    and a trainer that saved and exited with 0 looks like one that is done. A failed node comes before preemption: Slurm
    requeues the job after both, and counts both as a restart.
    """
    if ended.lost_node:
        return _lost_node(ended)
    if ended.is_preempted or ended.asked == "preempted":
        return _preempted(ended)
    if ended.asked == "terminated":
        return Outcome("terminated", "none", ended.code or 1, "the job was cancelled or ran out of time")
    if ended.stopped:
        return _stopped(ended)
    if ended.code == 0:
        return _ended(ended)
    return _failed(ended)


def _ended(ended: AttemptEnd) -> Outcome:
    """The training exited with 0, which alone does not say that it is done."""
    if ended.finished:
        return Outcome("completed", "none", 0, ended.steps or "the last phase exited with 0")
    if ended.finished is None:
        reason = "the training exited with 0; no line of its logs says how many of its iterations it did"
        return Outcome("undecided", "none", 0, reason)
    reason = f"the training exited with 0 before its end: {ended.steps}"
    refusal = _limit(ended) or ("" if ended.has_progress else _NO_PROGRESS)
    if refusal:
        return Outcome("ended-early", "none", 0, f"{reason}; {refusal}")
    return Outcome("ended-early", "requeue", 0, reason)


def _stopped(ended: AttemptEnd) -> Outcome:
    """The job's own checks ended it; it is requeued only without the unfit nodes."""
    if not ended.unfit:
        return Outcome("stopped", "none", ended.code or 1, ended.stopped)
    if refusal := _limit(ended):
        return Outcome("stopped", "none", ended.code or 1, f"{ended.stopped}; {refusal}")
    return Outcome("stopped", "requeue", ended.code or 1, ended.stopped, ended.unfit)


def _lost_node(ended: AttemptEnd) -> Outcome:
    """Slurm itself leaves the node out, so another attempt may end otherwise even if this one made no progress."""
    reason = f"ended by Slurm: {ended.lost_node}"
    if ended.phase >= _TRAINING:
        reason += f"; the trainer exited with {ended.code}"
    if refusal := _limit(ended):
        return Outcome("failed", "none", ended.code or 1, f"{reason}; {refusal}")
    return Outcome("failed", "requeue", ended.code or 1, reason)


def _preempted(ended: AttemptEnd) -> Outcome:
    by = "Slurm preempted or requeued the job" if ended.is_preempted else "Slurm signalled that the time limit is near"
    by = "Kubernetes ended a pod" if ended.in_pod else by
    if ended.phase < _TRAINING:
        reason = "; ".join(filter(None, (f"{by} before it trained", ended.stopped)))
    elif ended.code == 0:
        reason = f"{by}; the trainer exited with 0"
    elif ended.code == _KILLED:
        reason = f"{by}; the trainer was still running at the end: work since its last checkpoint may be lost"
    else:
        reason = f"{by}; the trainer exited with {ended.code}: work since its last checkpoint may be lost"
    refusal = _limit(ended)
    if refusal:
        # Saved and exited cleanly, but unfinished: it must not be mistaken for a completed training.
        return Outcome("preempted", "none", ended.code or 1, f"{reason}; {refusal}")
    return Outcome("preempted", "requeue", ended.code, reason)


def _failed(ended: AttemptEnd) -> Outcome:
    if ended.phase < _TRAINING:
        return Outcome("failed", "none", ended.code, f"phase {ended.phase} exited with {ended.code}")
    code = ended.first.code if ended.first is not None else ended.code
    reason = ended.stalled or f"{ended.first or 'the training'} exited with {code}"
    reason += f" ({ended.cause})" if ended.cause else ""
    exclude: tuple[str, ...] = (ended.at_fault,) if ended.at_fault else ()
    if code in VALIDATION_CODES:
        refusal, exclude = _after_validation(code, ended.suspicion)
    else:
        refusal = "" if ended.has_progress else _NO_PROGRESS
        refusal = "all of its iterations are done and saved: it would do nothing more" if ended.all_saved else refusal
    if ended.by_ft_launcher and ended.code == _NO_RESTART:
        refusal = "ft_launcher found that another start would not help (its exit code 93)"
    refusal = _limit(ended) or refusal
    if refusal:
        return Outcome("failed", "none", code, f"{reason}; {refusal}")
    return Outcome("failed", "requeue", code, reason, exclude)


def _after_validation(code: int, found: Suspicion) -> tuple[str, tuple[str, ...]]:
    """(why the job is not requeued, or ""; nodes to exclude) after a result failed its validation."""
    if found.at == "training":
        return "another GPU gave the same result: the fault is in the training, not in a node", ()
    if found.at == "" and code == _FAILED_VALIDATION:
        return "a result failed its validation, but no line says on which node", ()
    return "", found.nodes


def _limit(ended: AttemptEnd) -> str:
    if ended.max_requeues is None:
        return "the job is not requeued (hcp render --requeue N)"
    if ended.attempt >= ended.max_requeues:
        return f"requeued {ended.attempt} times, which is the limit"
    return ""


AGAIN = 75
"""With this exit code, a pod asks for another attempt (EX_TEMPFAIL of sysexits.h)."""
POD_RESTARTS = (_RESUME_ELSEWHERE, AGAIN, _KILLED, 128 + signal.SIGTERM)
"""Exit codes after which a job in Kubernetes starts again: with the last two, nothing was decided in the pod."""


def pod_exit_code(code: int, is_requeued: bool) -> int:
    """The exit code that tells Kubernetes the outcome. It can't exclude a node, so a failed validation (17) is final.

    >>> pod_exit_code(0, is_requeued=True), pod_exit_code(17, is_requeued=True), pod_exit_code(137, is_requeued=False)
    (75, 17, 1)
    """
    if is_requeued and code != _FAILED_VALIDATION:
        return code if code == _RESUME_ELSEWHERE else AGAIN
    return 1 if code in POD_RESTARTS else code


def was_preempted(shown: str) -> bool:
    """Whether Slurm preempted this attempt, by the text of `scontrol show job`: earlier attempts were before its start.

    >>> was_preempted("StartTime=2026-01-01T10:00:00 PreemptEligibleTime=x PreemptTime=2026-01-01T11:00:00")
    True
    """
    preempted, started = field_of(shown, "PreemptTime"), field_of(shown, "StartTime")
    return preempted[:1].isdigit() and preempted >= started


def field_of(shown: str, name: str) -> str:
    match = re.search(rf"(?<!\S){name}=(\S+)", shown)
    return match[1] if match else ""
