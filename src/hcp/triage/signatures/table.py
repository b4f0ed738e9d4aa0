"""The row type of the triage table, and the table itself in the order in which rows are tried on a line."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Role = Literal["cause", "effect", "report"]


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


def compiled(rows: tuple[Signature, ...]) -> list[tuple[Signature, re.Pattern[str]]]:
    """The rows with their expressions compiled, in order."""
    return [(row, re.compile(row.pattern)) for row in rows]


def table() -> tuple[Signature, ...]:
    """Every row; the first that matches a line names it, so the general ones come last."""
    from hcp.triage.signatures.system import EFFECTS, GENERAL, SYSTEM
    from hcp.triage.signatures.training import TRAINING

    return (*TRAINING, *SYSTEM, *EFFECTS, *GENERAL)
