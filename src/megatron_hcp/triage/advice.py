"""What to do with a dead job: stop, start it again, or start it again without a node; and why."""

from __future__ import annotations

import re
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


_NAMES = r"^(?:[\w.]{0,80}\.)?(?:ImportError|ModuleNotFoundError|NameError|UnboundLocalError|NotImplementedError)\b"
_DETERMINISTIC: tuple[tuple[re.Pattern[str], bool, str], ...] = (
    (re.compile(r"^(?:[\w.]{0,80}\.)?(?:SyntaxError|IndentationError|TabError)\b"), True, "correct the program"),
    (re.compile(_NAMES), True, "the program asks for what its packages, or their versions, don't have"),
    (
        re.compile(r"^(?:[\w.]{0,80}\.)?AttributeError: (?!'NoneType')"),
        True,
        "the program and its packages, or its options, don't fit each other",
    ),
    (
        re.compile(
            r"shapes? .{0,20}(?:mismatch|cannot be multiplied|incompatible|differ)|[Ss]ize ?mismatch|must match the "
            r"(?:existing )?size|mixed torch\.Tensor and DTensor|not divisible by|could not be broadcast together"
        ),
        True,
        "sizes of the model, the data or the layout don't fit each other",
    ),
    (re.compile(r"^(?:[\w.]{0,80}\.)?AssertionError\b"), False, "a check of the configuration failed"),
    (
        re.compile(
            r"^(?:[\w.]{0,80}\.)?(?:KeyError|IndexError|TypeError|NotADirectoryError|FileNotFoundError(?!.* -> ))\b"
        ),
        False,
        "the program asks for a name, a place or a file that isn't there",
    ),
    (re.compile(r"same dtype\b|expected (?:\w{1,12} )?scalar type"), True, "types of numbers don't fit each other"),
    (
        re.compile(r"outgoing traffic has been disabled|[Oo]ffline mode is|HFValidationError"),
        True,
        "the files are neither where it looks nor in the cache, and it may not download them",
    ),
    (
        re.compile(r"^(?:MemoryError|PermissionError)\b|MisconfigurationException|requires setting the environment"),
        True,
        "its configuration asks for what this machine, or its environment, doesn't give",
    ),
    (re.compile(r"does not have a device"), False, "a tensor was never placed on a device"),
    (
        re.compile(r"not a local folder and is not a valid model|not appear to have a file named"),
        True,
        "the model's folder or its name is wrong, as the job sees it",
    ),
    (
        re.compile(
            r"failed to import docker image|manifest (?:for \S{1,60} )?(?:unknown|not found)|pull access denied|"
            r"could not open image|[Nn]o such image|image \S{1,60} not found"
        ),
        True,
        "the container's image was not found, or may not be read",
    ),
)
"""What would fail again, by the failure's line: whether also after training steps, and what to change."""


_OF_DATA = re.compile(
    r"^(?:[\w.]{0,80}\.)?(?:ValueError|IndexError|KeyError|TypeError|StopIteration|ZeroDivisionError|OverflowError|"
    r"UnicodeDecodeError|RecursionError|AssertionError)\b"
)
"""What a program raises about its own values: after training steps, about the data that it has come to."""


def is_first_collective(failure: Failure, steps: int) -> bool:
    """Whether the very first collective of the job timed out, and no rank is known to have stayed away."""
    waited = failure.waited
    return waited is not None and waited.sequence in (0, 1) and not steps and not waited.missing


def advise(attempts: tuple[Attempt, ...]) -> Advice | None:
    """The advice on a job whose last attempt failed; None where it did not."""
    if not attempts or attempts[-1].failure is None:
        return None
    failure, steps = attempts[-1].failure, attempts[-1].steps
    again = failure.signature.again
    nodes = {attempt.failure.node for attempt in attempts if attempt.failure and attempt.failure.node}
    if again == "outside":
        return Advice("restart", "it was stopped from outside; the next attempt continues from the last checkpoint")
    if again == "same":
        return Advice("stop", f"the same launch would fail the same way; fix the cause first{_phase(failure, steps)}")
    if again == "machine":
        if came_back(attempts) and len(nodes) > 1:
            return Advice("stop", "it happened again on another node, so the machine is not the cause")
        where = failure.node or "the node (which the logs don't name)"
        return Advice("restart-without-node", f"the fault lies with {where} or its link, not the launch", failure.node)
    if came_back(attempts):
        return Advice("stop", "it happened again; another attempt would end the same way")
    if again == "link":
        return Advice("restart", "a link or its set-up failed, and the logs don't show at which end; check both first")
    if is_first_collective(failure, steps):
        return Advice("stop", "the first collective of the job timed out: its ranks never reached each other")
    what = next(
        (what for shape, later, what in _DETERMINISTIC if (later or not steps) and shape.search(failure.message)), ""
    )
    if what and failure.kind == "cause":
        return Advice("stop", f"the same launch would fail the same way: {what}")
    is_general = failure.kind == "cause" and failure.signature.role == "general"
    if is_general and not steps and attempts[-1].begins:
        return Advice("stop", "it failed before the first training step; the same launch would fail there again")
    if is_general and _OF_DATA.search(failure.message) and came_back(attempts) is None:
        return Advice("stop", "the program raised it, and a restart meets the same options and data: correct these")
    if is_general and not steps:
        return Advice("restart", "these logs don't show its start; if it fails before its first training step, stop")
    if failure.kind == "cause":
        return Advice("restart", "the failure may be transient; stop if it happens again")
    return Advice("restart", "these logs don't show the cause; restart once, and stop if it happens again")


def _phase(failure: Failure, steps: int) -> str:
    """When memory ran out, since the plan's figures are of one phase each."""
    if failure.signature.id != "gpu-memory":
        return ""
    return f" (it ran out after {steps} logged steps)" if steps else " (it ran out before the first training step)"
