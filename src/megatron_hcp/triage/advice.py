"""What to do with a dead job: stop, start it again, or start it again without a node; and why."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from megatron_hcp.triage.collective.arrivals import ranges_text
from megatron_hcp.triage.exit_codes import BUS_ERROR, CRASHED, ILLEGAL, INTERRUPTED, REFUSED
from megatron_hcp.triage.failure import Failure
from megatron_hcp.triage.remedy.memory import MEMORY, why_full
from megatron_hcp.triage.remedy.raised import came_too_late, is_of_program, is_of_slurm, why_again

Action = Literal["stop", "restart", "restart-without-node"]


class Attempt(NamedTuple):
    """How one attempt of the job ended; `failure` None: no failure is in its logs; `begins`: they show its start;
    `silent`: seconds since its last step."""

    number: int
    failure: Failure | None
    steps: int
    begins: bool
    silent: float = 0


class Advice(NamedTuple):
    """What to do, and why. `node` is named where it is to be left out."""

    action: Action
    reason: str
    node: str | None = None


def came_back(attempts: tuple[Attempt, ...]) -> bool | None:
    """Whether the last attempt failed as the one before it did; None where there are not two that failed."""
    failed = [attempt.failure for attempt in attempts if attempt.failure is not None]
    if len(failed) < 2 or attempts[-1].failure is None:
        return None
    before, last = failed[-2], failed[-1]
    if before.signature.id != last.signature.id:
        return False
    return before.signature.role != "general" or before.message == last.message


def is_first_collective(failure: Failure, steps: int) -> bool:
    """Whether the very first collective of the job timed out, and no rank is known to have stayed away."""
    waited = failure.waited
    return waited is not None and waited.sequence in (0, 1) and not steps and not waited.missing


def advise(attempts: tuple[Attempt, ...]) -> Advice | None:
    """The advice on a job whose last attempt failed; None where it did not."""
    if not attempts or attempts[-1].failure is None:
        return None
    failure, steps = attempts[-1].failure, attempts[-1].steps
    if failure.is_from_outside:
        return Advice("restart", _from_outside(failure, attempts[-1]))
    why, again = why_again(failure, steps), failure.signature.again
    if why:
        return Advice("stop", f"the same launch would fail the same way: {why}")
    if (earlier := _left_behind(attempts)) is not None:
        return Advice("stop", f"it was started again in place; mend why it failed before: {earlier.cause[:200]}")
    if again == "same":
        full = why_full(failure, steps) if failure.signature.id == MEMORY else ""
        return Advice("stop", f"the same launch would fail the same way; fix the cause first{full}")
    if again == "machine":
        return _of_machine(failure, attempts)
    if came_back(attempts):
        return Advice("stop", "it happened again; another attempt would end the same way")
    if again == "link":
        return Advice("restart", "a link or its set-up failed, and the logs don't show at which end; check both first")
    if is_first_collective(failure, steps):
        return Advice("stop", "the first collective of the job timed out: its ranks never reached each other")
    if failure.signature.id == "nccl-failed" and "nvalid usage" in failure.message:
        return Advice("stop", "NCCL refuses how it is called; has each rank a GPU of its own?")
    if failure.kind == "report" and failure.exit_code in REFUSED and not steps:
        return Advice("stop", "what was started refuses to run so; the same launch would end the same way")
    if failure.signature.id in _NOT_STARTED and not steps:
        return Advice("stop", "what it needs did not start, and its own log says why; the same launch would end there")
    if failure.kind == "report" and failure.exit_code in CRASHED:
        return Advice("stop", "a segmentation fault: the same program and libraries would run into it again")
    if failure.kind == "report" and failure.exit_code in ILLEGAL:
        return Advice("stop", "an illegal instruction: the program was built for another processor, or this one is bad")
    if failure.waited and failure.waited.missing and failure.signature.id == "rendezvous-timeout":
        where = ranges_text(failure.waited.missing)
        return Advice(
            "restart", f"{where} are silent: look first at the node of most of them, and leave it out if needed"
        )
    if failure.kind == "report" and failure.exit_code in BUS_ERROR and not steps:
        return Advice("stop", "a bus error at the start: /dev/shm is usually too small, and it would fill up again")
    return _of_program(failure, attempts)


_NOT_STARTED = ("rollout-engine",)
"""Signatures of servers that the job starts itself."""


_SILENT_S = 60


def _from_outside(failure: Failure, last: Attempt) -> str:
    if failure.signature.id in _ASKED_FOR or (failure.kind == "report" and failure.exit_code in INTERRUPTED):
        return (
            "somebody ended it: unless it hung, nothing has to be mended, and the next attempt goes on from its state"
        )
    if not last.steps and (failure.signature.role == "echo" or (last.begins and failure.signature.id == _TIME_LIMIT)):
        return "it was stopped from outside; these logs show no training step before that: look whether it hung"
    silence = ""
    if last.silent >= _SILENT_S:
        silence = f", {last.silent:.0f} s after its last training step: look whether it hung, if steps take less"
    return f"it was stopped from outside{silence}; the next attempt continues from the last checkpoint"


_OF_A_RESTART = ("gloo-loopback", "gloo-connect", "gloo-interface", "port-taken")
"""Signatures of what ranks meet that start while others of the attempt before have not ended."""


def meets_an_end(failure: Failure) -> bool:
    """Whether ranks only met that another had ended, or was still there."""
    return failure.kind == "effect" or failure.signature.id in _OF_A_RESTART


def _left_behind(attempts: tuple[Attempt, ...]) -> Failure | None:
    """The failure of an earlier attempt that trained, where the last one only failed to begin; else None."""
    last = attempts[-1]
    if last.steps or last.failure is None or not meets_an_end(last.failure):
        return None
    trained = (attempt.failure for attempt in reversed(attempts[:-1]) if attempt.steps and attempt.failure)
    return next((failure for failure in trained if failure.kind == "cause" and not failure.is_from_outside), None)


_TIME_LIMIT = "time-limit"  # a preemption is no sign of a hang
_ASKED_FOR = ("job-cancelled", "cancelled", "interrupted")
"""Signatures of an end that a person asked for, as an exit code may show too."""
_OF_REQUEST = ("gpu-driver",)
"""Signatures of machines' faults that a launch has too that asks for no GPU."""


def _of_machine(failure: Failure, attempts: tuple[Attempt, ...]) -> Advice:
    nodes = {attempt.failure.node for attempt in attempts if attempt.failure and attempt.failure.node}
    if came_back(attempts) and len(nodes) > 1:
        return Advice("stop", "it happened again on another node, so the machine is not the cause")
    if failure.node is None and failure.signature.id in _OF_REQUEST:
        return Advice("stop", "no GPU was found, on a node that the logs don't name: check what the job asks for first")
    where = failure.node or "the node (which the logs don't name)"
    return Advice("restart-without-node", f"the fault lies with {where} or its link, not the launch", failure.node)


def _shape(failure: Failure) -> str:
    """What failed, whichever sample, file or size it was."""
    return re.sub(r"\d+", "", f"{failure.signature.id} {failure.message}")


def _of_program(failure: Failure, attempts: tuple[Attempt, ...]) -> Advice:
    """The advice on what no row knows: a program's own word is of values that a restart meets again."""
    is_general = failure.kind == "cause" and failure.signature.role == "general"
    last = attempts[-1]
    if is_of_slurm(failure):
        return Advice("restart", "Slurm did not reach a node in time; if it happens again, leave that node out")
    if is_general and came_too_late(failure):
        return Advice("restart", "something was not ready in time, and may be the next time; stop if it happens again")
    if is_general and not last.steps and last.begins:
        return Advice("stop", "it failed before the first training step; the same launch would fail there again")
    before = [_shape(attempt.failure) for attempt in attempts[:-1] if attempt.failure]
    if is_of_program(failure) and _shape(failure) not in before:
        ranks = f"{len(failure.ranks)} ranks raised it alike" if len(failure.ranks) > 1 else "the program raised it"
        return Advice("stop", f"{ranks}, and a restart meets the same options and data: correct these")
    if is_general and not last.steps:
        return Advice("restart", "these logs don't show its start; if it fails before its first training step, stop")
    if failure.kind == "cause":
        return Advice("restart", "the failure may be transient; stop if it happens again")
    return Advice("restart", "these logs don't show the cause; restart once, and stop if it happens again")
