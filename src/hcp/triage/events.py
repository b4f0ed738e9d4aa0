"""Collects the lines of a log that a signature knows, and forgets those that did not end the job."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hcp.triage.line import Line, Name
from hcp.triage.signatures.row import Signature

_KEPT = 200
_STEPS_THAT_SURVIVE = 3
"""A failure after which the same log reports so many training steps did not end the job."""


class Event(NamedTuple):
    """One line that a signature knows."""

    signature: Signature
    groups: dict[str, str]
    line: Line
    file: int
    offset: int


@dataclass
class FileEvents:
    """The events of one log: pending ones, and how many were survived."""

    path: Path
    name: Name
    pending: list[Event] = field(default_factory=list)
    seen: set[tuple[str, int | None, int | None]] = field(default_factory=set)
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
        self.survived += len(self.pending)
        self.pending, self.seen, self.since = [], set(), 0
        self.counts = Counter()

    def add(self, event: Event) -> None:
        self.since = 0
        self.counts[event.signature.id] += 1
        key = (event.signature.id, event.line.rank, event.line.label)
        if key not in self.seen and len(self.pending) < _KEPT:
            self.seen.add(key)
            self.pending.append(event)
