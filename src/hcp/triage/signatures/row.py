"""A row of the triage table: what a log line may say, what that means, and what to do next."""

from __future__ import annotations

from typing import Literal, NamedTuple

Role = Literal["cause", "effect", "report"]

SACCT = "sacct -j {job} --format=JobID,State,ExitCode,NodeList,MaxRSS"
EXCLUDE_NODE = "take {node} out of the next job (sbatch --exclude={node}) and tell the administrators"


class Signature(NamedTuple):
    """One thing that a log line may say.

    `token`: bytes that every matching line holds; the cheap search that decides whether a line is looked at.
    `pattern`: tried on the line's text without its prefixes (rank labels, times, Ray's and NCCL's).
    `role`: a cause; an effect (what ranks say after another one failed); a report (a launcher's word about a rank).
    `cause`: what happened, for a reader; `{name}` is a named group of the pattern.
    `next`: commands or steps, most useful first; `{job}`, `{node}`, `{launch}`, `{rule}` are filled where known.
    `example` matches; `near` is a similar line that must not.
    """

    id: str
    rule: str
    role: Role
    token: bytes
    pattern: str
    cause: str
    next: tuple[str, ...]
    example: str
    near: str
    generic: bool = False
    """Says only that something failed: any other cause explains more."""
    context: str = ""
    """The lines above must match this too: for a text that other faults share (`KeyError: 8`)."""


def launch_fault(
    id: str,
    rule: str,
    pattern: str,
    cause: str,
    example: str,
    near: str,
    *steps: str,
    token: bytes = b"Error",
    context: str = "",
) -> Signature:
    """A cause that a rule finds in the launch: the first steps are to check the launch and to explain the rule."""
    steps = (f"hcp check {{launch}} --select {rule}", f"hcp explain {rule}", *steps)
    return Signature(id, rule, "cause", token, pattern, cause, steps, example, near, context=context)


def fault(
    id: str,
    pattern: str,
    cause: str,
    example: str,
    near: str,
    *steps: str,
    token: bytes = b"Error",
    rule: str = "",
    generic: bool = False,
) -> Signature:
    """A cause that is not in the launch: a machine, a file, a time limit; or any exception (`generic`)."""
    return Signature(id, rule, "cause", token, pattern, cause, steps, example, near, generic)


def effect(
    id: str, pattern: str, cause: str, example: str, near: str, *steps: str, token: bytes = b"Error", rule: str = ""
) -> Signature:
    """What a rank says because another one failed."""
    return Signature(id, rule, "effect", token, pattern, cause, steps, example, near)


def report(id: str, pattern: str, cause: str, example: str, near: str, *steps: str, token: bytes) -> Signature:
    """What a launcher says about a rank that ended."""
    return Signature(id, "", "report", token, pattern, cause, steps, example, near)
