"""Collects the lines of a log that a signature knows, and forgets those that did not end the job."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hcp.triage.exit_codes import exit_code
from hcp.triage.line import Line, Name, When, last_time, read_line
from hcp.triage.number import whole
from hcp.triage.scan import Hit
from hcp.triage.signatures.row import Signature

_KEPT = 200
_STEPS_THAT_SURVIVE = 3
"""A failure after which the same log reports so many training steps did not end the job."""


class FirstFailed(NamedTuple):
    """The worker that torchrun saw fail first."""

    host: str | None = None
    rank: int | None = None
    local: int | None = None
    code: int | None = None


class Event(NamedTuple):
    """One line that a signature knows."""

    signature: Signature
    groups: dict[str, str]
    line: Line
    file: int
    offset: int
    number: int
    """Of the line in its file, from 1."""
    when: When | None
    """The time that the line states, else the last one stated above it."""
    root: FirstFailed = FirstFailed()


@dataclass
class FileEvents:
    """The events of one log: the first pending one of each level, and how many were survived.

    `general` names the row for an exception whose specific row asked for a context that is not there.
    """

    path: Path
    name: Name
    general: Signature
    pending: dict[int, Event] = field(default_factory=dict)
    seen: set[tuple[str, int | None, int | None]] = field(default_factory=set)
    reported: bool = False
    survived: int = 0
    steps: int = 0
    since: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def progress(self, steps: int) -> None:
        self.steps += steps
        if steps and self.pending:
            self.since += steps
            if self.since >= _STEPS_THAT_SURVIVE:
                self.forget()

    def forget(self) -> None:
        """What was pending did not end the job: training went on, or a new attempt began."""
        self.survived += len(self.seen)
        self.pending, self.seen, self.since, self.reported = {}, set(), 0, False
        self.counts = Counter()

    def add(self, signature: Signature, groups: dict[str, str], line: Line, hit: Hit, file: int) -> None:
        """Adds the line of a hit, which a signature knows; `file` is the place of this log among all."""
        self.since = 0
        self.counts[signature.id] += 1
        key = (signature.id, line.rank, line.label)
        if key in self.seen or len(self.seen) >= _KEPT:
            return
        self.seen.add(key)
        if signature.context and not re.search(signature.context, hit.before()[-8192:]):
            exc, _, text = line.body.partition(": ")
            signature, groups = self.general, {"exc": exc, "text": text}
        first_report = signature.role == "report" and not self.reported
        self.reported = self.reported or first_report
        level = _level(signature, exit_code(groups), first_report)
        if level not in self.pending:
            when = line.when or last_time(hit.before())
            root = _first_failed(hit.after()) if signature.id == "torchrun-root" else FirstFailed()
            self.pending[level] = Event(signature, groups, line, file, hit.offset, hit.number, when, root)


def _level(row: Signature, code: int | None, is_first_report: bool) -> int:
    """0 a specific cause, 1 any exception, 2 a launcher's report, 3 an effect.

    The first report of a launcher that a task died of a signal is a cause: no log of the task can say so.
    """
    if row.role == "effect":
        return 3
    if row.role == "report":
        return 0 if is_first_report and code is not None and (code < 0 or code in (9, 137, 139)) else 2
    return 1 if row.generic else 0


def _first_failed(text: str) -> FirstFailed:
    """The fields of torchrun's block on the first failure that it saw; `text` starts with its title."""
    root = FirstFailed()
    for raw in text.splitlines()[1:12]:
        key, colon, value = (part.strip() for part in read_line(raw.encode("utf-8", "replace")).body.partition(":"))
        numbers = [whole(found) for found in re.findall(r"-?\d+", value)] if colon else []
        if colon and key == "host":
            root = root._replace(host=value)
        elif numbers and key == "rank":
            root = root._replace(rank=numbers[0], local=numbers[1] if len(numbers) > 1 else None)
        elif numbers and key == "exitcode":
            root = root._replace(code=numbers[0])
    return root
