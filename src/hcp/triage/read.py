"""Reads the logs of a job: its first failure if it died, and whether context parallelism is active if it runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hcp.core.errors import HcpError
from hcp.core.visible import visible
from hcp.triage.events import FileEvents
from hcp.triage.failure import Failure, first_failure
from hcp.triage.is_cp_on import ECHO_TOKEN, GROUP_TOKEN, SPEED_TOKENS, CpEvidence, CpPlan, CpVerdict, judge
from hcp.triage.line import Line, read_line, read_name
from hcp.triage.logged_job import LoggedJob
from hcp.triage.scan import Hit, scan
from hcp.triage.signatures.row import Signature
from hcp.triage.signatures.table import SIGNATURES, compiled
from hcp.triage.sources import is_log, opened

PROGRESS_TOKENS = (b"elapsed time per iteration", b"training/global_step", b"hcp-step ")
JOB_TOKEN = b"hcp-job: "
_AGENT = b"torch/distributed/elastic/agent/server/api.py:"
_SHUTDOWN = b"has failed to shutdown the rendezvous"
_ALWAYS = (JOB_TOKEN, GROUP_TOKEN, ECHO_TOKEN, *SPEED_TOKENS)
"""Lines with these are read every time: their numbers are what counts."""
_NUMBER = re.compile(rb"\d{3,}|0x[0-9a-f]+")
_LONGEST_SHAPE, _SHAPES, _ENOUGH = 2000, 20000, 1000


@dataclass(frozen=True)
class Diagnosis:
    """What the logs of one job show. `noise` counts the failure lines that are not the first, by signature."""

    state: Literal["failed", "running", "no-failure"]
    failure: Failure | None
    cp: CpVerdict
    job: LoggedJob
    noise: Counter[str]
    survived: int
    steps: int
    files: tuple[Path, ...]
    """The logs that were read."""
    binary: tuple[Path, ...]
    """Files that begin like no log: they were not read."""
    bytes: int

    @property
    def ok(self) -> bool:
        return self.failure is None and self.cp.state in ("on", "unknown")


def triage(paths: Sequence[Path], plan: CpPlan, advanced: Callable[[int], None] = lambda count: None) -> Diagnosis:
    """What the logs of one job show: its first failure, and whether context parallelism is on.

    Each log is read once, in constant memory.

    Args:
        paths: log files of one job; `STDIN` is standard input.
        plan: what the launch plans, as far as it is known.
        advanced: called with the number of bytes of every chunk read.

    Raises:
        HcpError: none of the files begins like a log, or standard input is closed.
        OSError: a file cannot be read.
    """
    rows = compiled(SIGNATURES)
    tokens = (*dict.fromkeys(row.token for row, _ in rows), GROUP_TOKEN, ECHO_TOKEN, JOB_TOKEN)
    general = next(row for row, _ in rows if row.id == "exception")
    job, cp = LoggedJob(), CpEvidence()
    reader = _Reader(rows, job, cp)
    files: list[FileEvents] = []
    binary, size, has_text = [], 0, False

    def read(count: int) -> None:
        nonlocal size
        size += count
        advanced(count)

    for path in paths:
        with opened(path) as (file, start):
            if start and not is_log(start):
                binary.append(path)
                continue
            has_text = has_text or bool(start)
            entry = FileEvents(path, read_name(str(path)), general)
            for hit in scan(file, tokens, SPEED_TOKENS, PROGRESS_TOKENS, read, start):
                entry.progress(hit.progress)
                if hit.line:
                    reader.read(hit, len(files), entry)
            files.append(entry)
    if not has_text:
        names = ", ".join(visible(str(path)) for path in paths[:8])
        raise HcpError(
            f"found no text in {names}; wanted the job's logs; a job that wrote nothing may have had no folder for "
            "its output (SLURM011)"
        )
    latest = max((entry.name.attempt or 0 for entry in files), default=0)
    current = [entry for entry in files if entry.name.attempt in (None, latest)]
    failure = first_failure(current, job)
    steps = sum(entry.steps for entry in files)
    noise = sum((entry.counts for entry in current), Counter[str]())
    if failure:
        noise[failure.signature.id] -= 1
    return Diagnosis(
        "failed" if failure else "running" if steps else "no-failure",
        failure,
        judge(cp, job.groups, plan),
        job,
        +noise,
        sum(entry.survived for entry in files),
        steps,
        tuple(entry.path for entry in files),
        tuple(binary),
        size,
    )


class _Reader:
    """Tries the rows on the lines that were found, and remembers what a repeated line turned out to be.

    A warning that thousands of lines repeat would otherwise cost the whole table every time. Lines count as the same
    if they differ in numbers of three digits and more (times, ids, addresses): the rows look at no such number.
    """

    def __init__(self, rows: list[tuple[Signature, re.Pattern[str]]], job: LoggedJob, cp: CpEvidence) -> None:
        self.rows = rows
        self.job = job
        self.cp = cp
        self.known: dict[bytes, str | None] = {}

    def read(self, hit: Hit, file: int, entry: FileEvents) -> None:
        shape = _NUMBER.sub(b"0", hit.line) if len(hit.line) <= _LONGEST_SHAPE else b""
        row_id = self.known.get(shape, "")
        if row_id is None or (row_id and entry.counts[row_id] > _ENOUGH):
            if row_id:
                entry.counts[row_id] += 1
            return
        line = read_line(hit.line)
        if any(token in hit.line for token in _ALWAYS):
            self._read_facts(hit, line, entry)
            shape = b""
        for row, pattern in self.rows:
            if row.token in hit.line:
                match = pattern.search(line.body)
                # The first node to end takes torchrun's store along: agents of a good job that still wait log it.
                if match and _SHUTDOWN not in hit.line and not (row.generic and _AGENT in hit.line):
                    groups = {name: value or "" for name, value in match.groupdict().items()}
                    entry.add(row, groups, line, hit, file)
                    self._remember(shape, row.id)
                    return
        self._remember(shape, None)

    def _remember(self, shape: bytes, row_id: str | None) -> None:
        if len(self.known) >= _SHAPES:
            self.known.clear()
        if shape:
            self.known[shape] = row_id

    def _read_facts(self, hit: Hit, line: Line, entry: FileEvents) -> None:
        if JOB_TOKEN in hit.line:
            before = self.job.attempt
            self.job.read(hit.line.partition(JOB_TOKEN)[2].decode("utf-8", "replace").lstrip())
            if self.job.attempt > before:
                entry.forget()
        else:
            self.cp.read(hit.line.decode("utf-8", "replace"), line.rank, str(entry.path))
