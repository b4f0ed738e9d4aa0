"""Tries the rows of the table on the lines of logs, and keeps what the other lines say about the job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hcp.triage.collectives import TOKENS as COLLECTIVE_TOKENS
from hcp.triage.collectives import CollectiveWaits
from hcp.triage.events import FileEvents, is_ignored
from hcp.triage.is_cp_on import ECHO_TOKEN, GROUP_TOKEN, SPEED_TOKENS, CpEvidence
from hcp.triage.line import QUIET, Line, read_line
from hcp.triage.log_name import read_name
from hcp.triage.logged_job import LoggedJob
from hcp.triage.scan import Hit
from hcp.triage.signatures.row import Signature

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
_DONE_TOKENS = (b"[after training is done]", b'"key": "run_stop"')
"""What Megatron-LM and MLPerf's programs print when the training is done."""
_RESTART_TOKEN = b"will restart worker group"
_AGENT = b"torch/distributed/elastic/agent/server/api.py:"
_LAST_ERROR = b"Last error:"
"""Below these words torch prints what NCCL said, in a line that may hold no token."""
_SHUTDOWN = b"has failed to shutdown the rendezvous"
_MARKS = (JOB_TOKEN, *_DONE_TOKENS, _RESTART_TOKEN)
_ALWAYS = (*_MARKS, GROUP_TOKEN, ECHO_TOKEN, *SPEED_TOKENS, *COLLECTIVE_TOKENS)
"""Lines with these are read every time: their numbers are what counts."""
_SPOKEN = ("cause", "general", "effect")
"""Roles of lines that a logger's level can take back: a warning ended nothing."""
_NUMBER = re.compile(rb"\d{3,}|0x[0-9a-f]+")
_LONGEST_SHAPE, _SHAPES, _ENOUGH = 2000, 20000, 1000


def words_of(rows: Sequence[Signature]) -> tuple[bytes, ...]:
    """What is searched for: a line without one of these says nothing."""
    of_rows = (token for row in rows for token in row.tokens)
    return tuple(dict.fromkeys((*of_rows, GROUP_TOKEN, ECHO_TOKEN, *_MARKS, *COLLECTIVE_TOKENS)))


def _next_line(hit: Hit) -> Hit:
    """The line below that of a hit."""
    at = hit.chunk.find(b"\n", hit.at) + 1
    if not at:
        return hit._replace(line=b"")
    end = hit.chunk.find(b"\n", at, at + _LONGEST_SHAPE)
    line = hit.chunk[at : end if end >= 0 else at + _LONGEST_SHAPE]
    return hit._replace(offset=hit.offset + at - hit.at, number=hit.number + 1, line=line, at=at)


class LineReader:
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
        is_told = hit.line.rstrip().endswith(_LAST_ERROR)
        if is_told:
            hit = _next_line(hit)
        line = read_line(hit.line)
        if any(token in hit.line for token in _ALWAYS):
            self._read_facts(hit, line)
            shape = b""
        if is_told:
            shape = b""
        row_id = self._try_rows(hit, line, file, is_told)
        if len(self.known) >= _SHAPES:
            self.known.clear()
        if shape:
            self.known[shape] = row_id

    def _try_rows(self, hit: Hit, line: Line, file: int, is_told: bool) -> str | None:
        """The id of the first row that knows the line; its event is added.

        `is_told`: NCCL announced the line, so that it need not hold a token.
        """
        if _SHUTDOWN in hit.line:
            # The first node to end takes torchrun's store along: agents of a good job that still wait log it.
            return None
        is_quiet = line.level in QUIET
        for row, pattern in self.rows:
            if (is_quiet and row.role in _SPOKEN) or not (is_told or any(token in hit.line for token in row.tokens)):
                continue
            match = pattern.search(line.body)
            if match is None or (row.role in ("general", "effect") and _AGENT in hit.line):
                continue
            if row.context and not re.search(row.context, hit.before()[-8192:]):
                continue
            if row.role in ("cause", "general") and is_ignored(hit.before()):
                return row.id
            if row.id == "preempted" and self.job.ends.get(self.job.attempt) in ("failed", "stopped"):
                return row.id  # the job had ended already, and asked to be started again itself
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
