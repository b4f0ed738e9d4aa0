"""A row of the triage table: what a log line may say, what that means, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from megatron_hcp.ground.secrets import without_secrets

Role = Literal["cause", "death", "general", "end", "origin", "unknown", "effect", "report", "echo", "stall"]
"""What a line is to the failure; the first in this order explains most.

cause: what went wrong. death: a launcher's first word, that a task died of a signal. general: some exception that no
row knows. end: the job was ended from outside (time limit, preemption). origin: what a rank says because another one
failed, with a word on which or where. unknown: it says error, and no row knows it. effect: as origin, without such a
word. report: a launcher's word on a rank that ended. echo: what everything says that is being ended.
stall: a warning; the cause only where it repeats until the job is ended from outside, before its first step.
"""
Again = Literal["same", "machine", "link", "chance", "outside"]
"""Whether it would come back: the same launch fails the same way; a machine is suspect; a link is, whose line says
nothing about which of its ends; it may pass; it came from outside the job."""

_LONGEST = 500
"""Characters of a text from the log that are kept: enough to know the line again."""
SACCT = "sacct -j {job} --format=JobID,State,ExitCode,NodeList,MaxRSS"
EXCLUDE_NODE = "exclude {node} from the next job (sbatch --exclude={node}) and tell the administrators"
ERROR = b"rror"
"""Of lines that say error in any way but in capitals."""


class Signature(NamedTuple):
    """One thing that a log line may say.

    `tokens`: every matching line holds one of these; the cheap search that decides whether a line is looked at.
    `pattern`: tried on the line's text without its prefixes (megatron_hcp.triage.line).
    `cause`: what happened, for a reader; `{name}` is a named group of the pattern.
    `next`: commands or steps, most useful first; `{job}`, `{node}`, `{launch}`, `{rule}` are filled where known;
    `{memory}` is what the launch can still do to save GPU memory.
    tests/triage/examples.txt has a line that each row matches, and a similar one that it must not.
    """

    id: str
    rule: str
    role: Role
    again: Again
    tokens: tuple[bytes, ...]
    pattern: str
    cause: str
    next: tuple[str, ...]
    context: str = ""
    """The lines above must match this too: for a text that other faults share (`KeyError: 8`)."""
    at_any_level: bool = False
    """Whether the line counts where a logger only informs: a training's own figures."""


def filled_cause(cause: str, groups: Mapping[str, str]) -> str:
    """The cause with the groups of its pattern filled in, in one pass: what a log says is never a place to fill.

    Parentheses around a group that is empty go with it.
    """

    def value(place: re.Match[str]) -> str:
        said = said_text(groups.get(place["name"], ""))
        return f" ({said})" if said and place["open"] else said

    filled = re.sub(r"(?P<open> \()?{(?P<name>[a-z0-9]+)}(?(open)\))", value, cause)
    return filled.rstrip().removesuffix(":")


def said_text(text: str) -> str:
    """A text of a log as it is kept for the report: the one place through which such texts pass."""
    return without_secrets(text)[:_LONGEST]


def launch_fault(
    id: str,
    rule: str,
    pattern: str,
    cause: str,
    *steps: str,
    tokens: tuple[bytes, ...] = (ERROR,),
    context: str = "",
) -> Signature:
    """A cause that a rule finds in the launch: the first steps are to check the launch and to explain the rule."""
    steps = (f"hcp check {{launch}} --select {rule}", f"hcp explain {rule}", *steps)
    return Signature(id, rule, "cause", "same", tokens, pattern, cause, steps, context)


def fault(
    id: str,
    pattern: str,
    cause: str,
    *steps: str,
    tokens: tuple[bytes, ...] = (ERROR,),
    rule: str = "",
    role: Role = "cause",
    again: Again = "same",
    context: str = "",
    at_any_level: bool = False,
) -> Signature:
    """A cause that no rule finds in the launch: a machine, a file, a network; or any exception (`role="general"`)."""
    return Signature(id, rule, role, again, tokens, pattern, cause, steps, context, at_any_level)


def ended(id: str, pattern: str, cause: str, *steps: str, tokens: tuple[bytes, ...] = (b"CANCELLED",)) -> Signature:
    """Someone or something outside the job ended it."""
    return Signature(
        id,
        "",
        "end",
        "outside",
        tokens,
        pattern,
        cause,
        steps,
    )


def effect(
    id: str,
    pattern: str,
    cause: str,
    *steps: str,
    tokens: tuple[bytes, ...] = (ERROR,),
    rule: str = "",
    role: Role = "effect",
    context: str = "",
    at_any_level: bool = False,
) -> Signature:
    """What a rank says because another one failed."""
    return Signature(id, rule, role, "chance", tokens, pattern, cause, steps, context, at_any_level)


def report(
    id: str,
    pattern: str,
    cause: str,
    *steps: str,
    tokens: tuple[bytes, ...] = (ERROR,),
    role: Role = "report",
) -> Signature:
    """What a launcher says about a rank that ended."""
    return Signature(
        id,
        "",
        role,
        "chance",
        tokens,
        pattern,
        cause,
        steps,
    )
