"""What to do with a dead job: stop, start it again, or start it again without a node; and why."""

from __future__ import annotations

from typing import Literal, NamedTuple

from megatron_hcp.triage.failure import Failure

Action = Literal["stop", "restart", "restart-without-node"]


class Attempt(NamedTuple):
    """How one attempt of the job ended; `failure` None: no failure is in its logs; `begins`: they show its start."""

    number: int
    failure: Failure | None
    steps: int
    begins: bool


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


def advise(attempts: tuple[Attempt, ...]) -> Advice | None:
    """The advice on a job whose last attempt failed; None where it did not."""
    if not attempts or attempts[-1].failure is None:
        return None
    failure, again = attempts[-1].failure, attempts[-1].failure.signature.again
    nodes = {attempt.failure.node for attempt in attempts if attempt.failure and attempt.failure.node}
    if again == "outside":
        return Advice("restart", "it was stopped from outside; the next attempt continues from the last checkpoint")
    if again == "same":
        return Advice("stop", "the same launch would fail the same way; fix the cause first")
    if again == "machine":
        if came_back(attempts) and len(nodes) > 1:
            return Advice("stop", "it happened again on another node, so the machine is not the cause")
        where = failure.node or "the node (which the logs don't name)"
        return Advice("restart-without-node", f"the fault lies with {where} or its link, not the launch", failure.node)
    if came_back(attempts):
        return Advice("stop", "it happened again; another attempt would end the same way")
    if failure.kind == "cause" and not attempts[-1].steps and failure.signature.role == "general":
        if attempts[-1].begins:
            return Advice("stop", "it failed before the first training step; the same launch would fail there again")
        return Advice("restart", "these logs don't show its start; if it fails before its first training step, stop")
    if failure.kind == "cause":
        return Advice("restart", "the failure may be transient; stop if it happens again")
    return Advice("restart", "these logs don't show the cause; restart once, and stop if it happens again")
