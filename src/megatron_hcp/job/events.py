"""What a job prints about itself: lines of JSON that `hcp triage` reads, and its last one, the verdict."""

from __future__ import annotations

import json
import sys
from typing import Any

from megatron_hcp.ground.visible import visible
from megatron_hcp.job.task import JobTask

_LONGEST = 400


class Events:
    """Prints the events of a job; only the task that leads it prints any."""

    def __init__(self, task: JobTask) -> None:
        self.task = task

    def say(self, event: str, **fields: Any) -> str:
        """Prints an event; returns its line."""
        about = {"event": event, "job": self.task.job, "attempt": self.task.attempt}
        line = "hcp-job: " + json.dumps({**about, **fields})
        print(line, flush=True)
        return line

    def place(self, event: str, **fields: Any) -> None:
        """An event without the job and the attempt: there is one per rank and group."""
        print("hcp-job: " + json.dumps({"event": event, **fields}), flush=True)


def one_line(text: str) -> str:
    """A text that fits into an event: one line, without control characters, not too long."""
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 3] + "..."


def complain(text: str) -> None:
    for line in text.splitlines():
        print(visible(line), file=sys.stderr, flush=True)
