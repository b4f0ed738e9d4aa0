"""Reads the logs of a job: its first failure if it died, and whether context parallelism is active if it runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hcp.core.errors import HcpError
from hcp.core.visible import visible
from hcp.triage.advice import Advice, Attempt, advise
from hcp.triage.collectives import TOKENS as COLLECTIVE_TOKENS
from hcp.triage.collectives import CollectiveWaits, Waited
from hcp.triage.events import FileEvents, is_ignored
from hcp.triage.failure import Failure, first_failure
from hcp.triage.flight_recorder import read_dumps
from hcp.triage.is_cp_on import ECHO_TOKEN, GROUP_TOKEN, SPEED_TOKENS, CpEvidence, CpPlan, CpVerdict, judge
from hcp.triage.line import QUIET, Line, read_line
from hcp.triage.log_name import read_name
from hcp.triage.logged_job import LoggedJob
from hcp.triage.scan import Hit, scan
from hcp.triage.signatures.row import Signature
from hcp.triage.signatures.table import SIGNATURES, compiled
from hcp.triage.sources import is_log, opened

PROGRESS_TOKENS = (
    b"elapsed time per iteration",
    b"training/global_step",
    b"hcp-step ",
    b"elapsed_time_per_iteration_ms",
    b"{'loss': ",
    b"reduced_train_loss",
    b"'train/step': ",
)
"""One for each way to print a training step: Megatron-LM, verl, ours, nanotron, Hugging Face, Lightning, slime."""
JOB_TOKEN = b"hcp-job: "
_DONE_TOKENS = (b"[after training is done]", b"'train_runtime'", b'"key": "run_stop"')
"""What Megatron-LM, Hugging Face's Trainer and MLPerf's programs print when the training is done."""
_RESTART_TOKEN = b"will restart worker group"
_AGENT = b"torch/distributed/elastic/agent/server/api.py:"
_SHUTDOWN = b"has failed to shutdown the rendezvous"
_MARKS = (JOB_TOKEN, *_DONE_TOKENS, _RESTART_TOKEN)
_ALWAYS = (*_MARKS, GROUP_TOKEN, ECHO_TOKEN, *SPEED_TOKENS, *COLLECTIVE_TOKENS)
"""Lines with these are read every time: their numbers are what counts."""
_SPOKEN = ("cause", "general", "effect")
"""Roles of lines that a logger's level can take back: a warning ended nothing."""
_HANGS = ("collective-timeout", "watchdog-stuck")
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
    attempts: tuple[Attempt, ...] = ()
    """All attempts that the logs tell apart, in order; the last is the one that `failure` is of."""
    advice: Advice | None = None
    waited: Waited | None = None
    """The collective that the job stopped in."""
    dumps: tuple[Path, ...] = ()
    unread: tuple[tuple[Path, str], ...] = ()
    """Dumps that could not be read, each with why."""

    @property
    def ok(self) -> bool:
        return self.failure is None and self.cp.state in ("on", "unknown")


def triage(
    paths: Sequence[Path],
    plan: CpPlan,
    advanced: Callable[[int], None] = lambda count: None,
    dumps: Sequence[Path] = (),
) -> Diagnosis:
    """What the logs of one job show: its first failure, and whether context parallelism is on.

    Each log is read once, in constant memory.

    Args:
        paths: log files of one job; `STDIN` is standard input.
        plan: what the launch plans, as far as it is known.
        advanced: called with the number of bytes of every chunk read.
        dumps: files of torch's flight recorder, one of each rank.

    Raises:
        HcpError: none of the files begins like a log, or standard input is closed.
        OSError: a file cannot be read.
    """
    rows = compiled(SIGNATURES)
    tokens = tuple(
        dict.fromkeys(
            (*(token for row, _ in rows for token in row.tokens), GROUP_TOKEN, ECHO_TOKEN, *_MARKS, *COLLECTIVE_TOKENS)
        )
    )
    reader = _LineReader(rows)
    binary, size, has_text = [], 0, False
    read_paths: list[Path] = []

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
            reader.open(path)
            for hit in scan(file, tokens, SPEED_TOKENS, PROGRESS_TOKENS, read, start):
                reader.entry.progress(hit.progress)
                if hit.line:
                    reader.read(hit, len(read_paths))
            read_paths.append(path)
    if not has_text:
        names = ", ".join(visible(str(path)) for path in paths[:8])
        raise HcpError(
            f"found no text in {names}; wanted the job's logs; a job that wrote nothing may have had no folder for "
            "its output (SLURM011)"
        )
    waited, unread = read_dumps(dumps)
    diagnosis = _conclude(reader, plan, waited)
    return replace(
        diagnosis, files=tuple(read_paths), binary=tuple(binary), bytes=size, dumps=tuple(dumps), unread=tuple(unread)
    )


def _conclude(reader: _LineReader, plan: CpPlan, dumped: Waited | None) -> Diagnosis:
    """What was read, put together; `dumped` is what the flight recorder's dumps say."""
    files, job = reader.files, reader.job
    numbers = sorted({entry.attempt for entry in files if entry.attempt is not None}) or [0]
    attempts = []
    for number in numbers:
        own = [entry for entry in files if entry.attempt == number or (entry.attempt is None and number == numbers[-1])]
        failure = None if job.ends.get(number) == "completed" else first_failure(own, job.of_attempt(number))
        attempts.append(Attempt(number, failure, sum(entry.steps for entry in own)))
    current = [entry for entry in files if entry.attempt in (None, numbers[-1])]
    steps = sum(entry.steps for entry in files)
    noise = sum((entry.counts for entry in current), Counter[str]())
    survived = sum(entry.survived for entry in files)
    failure = attempts[-1].failure
    if failure:
        noise[failure.signature.id] -= 1
    elif job.ends.get(numbers[-1]) == "completed":
        survived, noise = survived + sum(len(entry.seen) for entry in current), Counter()
    waited = dumped or reader.waits.first(job.world())
    if failure and waited and failure.signature.id in _HANGS:
        failure = _with_collective(failure, waited, job)
        attempts[-1] = attempts[-1]._replace(failure=failure)
    return Diagnosis(
        "failed" if failure else "running" if steps else "no-failure",
        failure,
        judge(reader.cp, job.groups, plan),
        job,
        +noise,
        survived,
        steps,
        (),
        (),
        0,
        tuple(attempts),
        advise(tuple(attempts)),
        waited,
    )


def _with_collective(failure: Failure, waited: Waited, job: LoggedJob) -> Failure:
    """The failure in the words of the collective that timed out, at the rank that did not come to it."""
    after = f" after {waited.seconds} s" if waited.seconds else ""
    group = f" of {waited.group}" if waited.group else ""
    number = "" if waited.sequence is None else f" (number {waited.sequence})"
    cause = f"the collective {waited.op}{number}{group} timed out{after}: {ranks_text(waited.arrived)} waited in it, "
    if not waited.missing:
        return replace(failure, cause=cause + "who did not come, these logs do not say", waited=waited)
    rank = waited.missing[0]
    node = job.node_of_rank.get(rank)
    if node is None and job.gpus_per_node and rank // job.gpus_per_node < len(job.nodes):
        node = job.nodes[rank // job.gpus_per_node]
    cause += f"{ranks_text(waited.missing)} did not come"
    return replace(failure, cause=cause, waited=waited, rank=rank, node=node, local_rank=None)


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks for a reader: the first few, and how many there are.

    >>> ranks_text((3,)), ranks_text(range(40))
    ('rank 3', 'ranks 0, 1, 2, 3, 4, 5, 6, 7, ... (40)')
    """
    shown = ", ".join(map(str, ranks[:8]))
    return f"rank{'' if len(ranks) == 1 else 's'} {shown}" + (f", ... ({len(ranks)})" if len(ranks) > 8 else "")


class _LineReader:
    """Tries the rows on the lines that were found, and remembers what a repeated line turned out to be.

    A warning that thousands of lines repeat would otherwise cost the whole table every time. Lines count as the same
    if they differ in numbers of three digits and more (times, ids, addresses): the rows look at no such number.
    """

    def __init__(self, rows: list[tuple[Signature, re.Pattern[str]]]) -> None:
        self.rows = rows
        self.job = LoggedJob()
        self.cp = CpEvidence()
        self.waits = CollectiveWaits()
        self.files: list[FileEvents] = []
        self.known: dict[bytes, str | None] = {}

    @property
    def entry(self) -> FileEvents:
        """Of the attempt that is being read."""
        return self.files[-1]

    def open(self, path: Path) -> None:
        """Begins a log."""
        name = read_name(str(path))
        self.files.append(FileEvents(path, name, name.attempt))

    def read(self, hit: Hit, file: int) -> None:
        shape = _NUMBER.sub(b"0", hit.line) if len(hit.line) <= _LONGEST_SHAPE else b""
        row_id = self.known.get(shape, "")
        if row_id is None or (row_id and self.entry.counts[row_id] > _ENOUGH):
            if row_id:
                self.entry.counts[row_id] += 1
            return
        line = read_line(hit.line)
        if any(token in hit.line for token in _ALWAYS):
            self._read_facts(hit, line)
            shape = b""
        row_id = self._try_rows(hit, line, file)
        if len(self.known) >= _SHAPES:
            self.known.clear()
        if shape:
            self.known[shape] = row_id

    def _try_rows(self, hit: Hit, line: Line, file: int) -> str | None:
        """The id of the first row that knows the line; its event is added."""
        if _SHUTDOWN in hit.line:
            # The first node to end takes torchrun's store along: agents of a good job that still wait log it.
            return None
        is_quiet = line.level in QUIET
        for row, pattern in self.rows:
            if (is_quiet and row.role in _SPOKEN) or not any(token in hit.line for token in row.tokens):
                continue
            match = pattern.search(line.body)
            if match is None or (row.role in ("general", "effect") and _AGENT in hit.line):
                continue
            if row.context and not re.search(row.context, hit.before()[-8192:]):
                continue
            if row.role == "general" and is_ignored(hit.before()):
                return row.id
            groups = {name: value or "" for name, value in match.groupdict().items()}
            self.entry.add(row, groups, line, hit, file)
            return row.id
        return None

    def _read_facts(self, hit: Hit, line: Line) -> None:
        text = hit.line.decode("utf-8", "replace")
        if JOB_TOKEN in hit.line:
            if self.job.read(text.partition("hcp-job: ")[2].lstrip()) == "start":
                self._begin(self.job.attempt)
            return
        if _RESTART_TOKEN in hit.line:
            self._begin((self.entry.attempt or 0) + 1)
        elif any(token in hit.line for token in _DONE_TOKENS):
            self.entry.forget()
        if any(token in hit.line for token in COLLECTIVE_TOKENS):
            self.waits.read(text[:8192], line.rank)
        self.cp.read(text, line.rank, str(self.entry.path))

    def _begin(self, attempt: int) -> None:
        """An attempt begins in this log. What stands above the first one that a log names is of the one before it."""
        if self.entry.attempt is None:
            self.entry.attempt = attempt - 1 if self.entry.seen and attempt else attempt
        if attempt > self.entry.attempt:
            self.files.append(FileEvents(self.entry.path, self.entry.name, attempt))
