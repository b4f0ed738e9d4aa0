"""Tries the rows of the table on the lines of logs, and keeps what the other lines say about the job."""

from __future__ import annotations

import re

from megatron_hcp.triage.collective.waits import TOKENS as COLLECTIVE_TOKENS
from megatron_hcp.triage.collective.waits import CollectiveWaits
from megatron_hcp.triage.course.idle import Idle
from megatron_hcp.triage.course.not_finite import said
from megatron_hcp.triage.cp.evidence import CpEvidence
from megatron_hcp.triage.events import HANGS, IDLE, LASTING, FileEvents
from megatron_hcp.triage.history import History
from megatron_hcp.triage.line import INFORMING, QUIET, Line, read_line
from megatron_hcp.triage.logged_job import LoggedJob
from megatron_hcp.triage.raised.frames import raised_at
from megatron_hcp.triage.raised.survived import is_ignored, is_outlived, may_be_outlived
from megatron_hcp.triage.raised.tracebacks import (
    HEAD,
    end_of_traceback,
    heads_traceback,
    is_source,
    lines_below,
    of_rank,
    rejoined,
    text_below,
)
from megatron_hcp.triage.raised.wrapped import crosses, joined, line_above
from megatron_hcp.triage.scan import Hit
from megatron_hcp.triage.signatures.progress import HARMLESS, begun, finished, is_of_training, last_words
from megatron_hcp.triage.signatures.ray import said_around
from megatron_hcp.triage.signatures.row import Role, Signature
from megatron_hcp.triage.signatures.table import ALWAYS, JOB_TOKEN, RESTART_TOKEN, places_of, words_of

_AGENT = b"torch/distributed/elastic/agent/server/api.py:"
_LAST_ERROR = b"Last error:"
"""Below these words torch prints what NCCL said, in a line that may hold no token."""
_LEAVING = (b"has failed to shutdown the rendezvous", b"has failed to send a keep-alive heartbeat to the rendezvous")
"""The first node to end takes torchrun's store along: agents of a good job that still wait warn so."""
_RAYS_TRACEBACK = (b"RayTaskError(", b"raised in its creation task", b"nhandled error ")
"""In lines that stand above the frames of another process, as Ray passes them on."""
_FRAME = b'", line '
_SAYS_ERROR = re.compile(
    r"^(?:\S{1,80}: )?\[?(?:ERROR|Error|error|FATAL|Fatal|fatal|CRITICAL)\]?(?: |: )\S|"
    r"^(?!.{0,200}[Ww]arning).{0,200}?\b[A-Z]\w{2,40}(?:Error|Exception): \S"
)
"""A line that says error by itself, without a logger's level; or names an exception behind an unknown prefix."""
_ERROR_LEVELS = frozenset(("E", "F", "C", "ERROR", "CRITICAL", "FATAL", "error", "fatal"))
_KNOWN: frozenset[Role] = frozenset(("cause", "death", "general"))
"""Roles of lines that say what happened."""
_SPOKEN = ("cause", "general")
_INFORMED = (*_SPOKEN, "report", "echo")
"""Roles of lines that a logger's level can take back: a warning ended nothing, and Ray informs of each good end."""
_WRAPPED = ("cause", "origin", "effect", "report")
_NUMBER = re.compile(rb"\d{3,}|0x[0-9a-f]+")
_OF_SERVICE = re.compile(r"\b(?:https?|s3|gs|oss|hdfs)://\w")
_LONGEST_SHAPE, _LONGEST_STEP, _SHAPES, _ENOUGH = 2000, 8000, 20000, 1000
_TAIL = 8192
"""Bytes at the end of a log that are its last words."""
_TRACEBACKS = 200
"""Of an attempt, so many are read to their end."""


class LineReader:
    """Tries the rows on the lines that were found, and remembers what a repeated line turned out to be.

    A warning that thousands of lines repeat would otherwise cost the whole table every time. Lines count as the same
    if they differ in numbers of three digits and more (times, ids, addresses): the rows look at no such number.
    """

    def __init__(self, rows: list[tuple[Signature, re.Pattern[str]]]) -> None:
        self.rows = rows
        self._places, self._named = places_of([row for row, _ in rows]), {row.id: row for row, _ in rows}
        self.words = words_of([row for row, _ in rows])
        self.job = LoggedJob()
        self.cp = CpEvidence()
        self.waits = CollectiveWaits()
        self.history = History()
        self.known: dict[bytes, str | None] = {}

    @property
    def entry(self) -> FileEvents:
        """Of the attempt that is being read."""
        return self.history.entry

    def read(self, hit: Hit, file: int) -> None:
        if hit.is_not_finite:
            self._read_not_finite(hit, file)
        shape = _NUMBER.sub(b"0", hit.line) if len(hit.line) <= _LONGEST_SHAPE else b""
        row_id = self.known.get(shape, "")
        if row_id is None or (row_id and self.entry.counts[row_id] > _ENOUGH):
            if row_id:
                self.entry.counts[row_id] += 1
            return
        if HEAD in hit.line:
            self._read_traceback(hit, file)
            return
        if any(head in hit.line for head in _RAYS_TRACEBACK):
            self._read_traceback(hit, file, is_whole=False)
        told = text_below(hit) if hit.line.rstrip().endswith(_LAST_ERROR) else None
        hit, shape = (told, b"") if told else (hit, shape)
        line = read_line(hit.line)
        if whole := rejoined(hit, line):
            line, shape = whole, b""
        if any(token in hit.line for token in ALWAYS):
            self._read_facts(hit, line)
            shape = b""
        row_id = self._try_rows(hit, line, file, is_told=told is not None)
        if len(self.known) >= _SHAPES:
            self.known.clear()
        if shape:
            self.known[shape] = row_id

    def close(self, end: Hit, file: int) -> None:
        """Ends a log, at the hit that stands for its end: where no failure is known, its last words are looked at."""
        if end.idle:
            self._read_idle(end.idle, end, file)
        self.history.outlive_end(end)
        if is_of_training(self.entry.over):
            return
        if end.offset == end.at and not self.entry.tracebacks and not self.entry.pending.keys() & _KNOWN:
            self._read_headless(end, file)
        if self.entry.pending.keys() - {"stall"}:
            return
        at = max(0, end.at - _TAIL)
        tail = end.chunk[at : end.at]
        if said := last_words(tail):
            place, line = said
            start = at + sum(len(raw) + 1 for raw in tail.split(b"\n")[:place])
            number = end.number - tail.count(b"\n") + place
            hit = end._replace(offset=end.offset - end.at + start, number=number, at=start)
            if not is_outlived(hit, line, "general"):
                self.entry.add_unknown(line, hit, file)

    def _read_not_finite(self, hit: Hit, file: int) -> None:
        """A loss or a gradient norm that is no number: a failure where it is so step after step."""
        found = said(hit.line[:_LONGEST_STEP].decode("utf-8", "replace"))
        entry = self.entry
        if found and entry.not_finite.add(found, hit) and (first := entry.not_finite.row):
            groups = entry.not_finite.groups
            if not any(event.groups is groups for event in entry.pending.values()):
                row = self._named[LASTING["loss" not in groups["name"]]]
                entry.add(row, groups, read_line(first.line), first, file)

    def _read_idle(self, idle: Idle, end: Hit, file: int) -> None:
        """A training that learns nothing, by the last lines of a log that say so."""
        at = max(0, end.chunk.rfind(idle.line, 0, end.at))  # not found: what is kept begins below it
        number = end.number - end.chunk.count(b"\n", at, end.at)
        if not idle.is_failure:
            self.entry.idle = number, f"{idle.what}: {read_line(idle.line).body}"
            return
        hit = end._replace(offset=end.offset - end.at + at, number=number, line=idle.line, at=at)
        self.entry.add(self._named[IDLE], {"what": idle.what}, read_line(idle.line), hit, file)

    def _read_headless(self, end: Hit, file: int) -> None:
        """The traceback that a log begins within, by its first frame; the hit stands for the end of the log."""
        at = end.chunk.rfind(b"\n", 0, max(0, end.chunk.find(_FRAME))) + 1
        line = end.chunk[at : end.chunk.find(b"\n", at)]
        if _FRAME in line:
            number = end.number - end.chunk.count(b"\n", at)
            self._read_traceback(end._replace(offset=at, number=number, line=line, at=at), file)

    def _read_traceback(self, hit: Hit, file: int, is_whole: bool = True) -> None:
        """The exception of a traceback, where its name holds no word that is searched for; `is_whole`: has its head."""
        if self.entry.tracebacks >= _TRACEBACKS:
            return
        self.entry.tracebacks += 1
        raised = end_of_traceback(hit)
        if raised is None:
            if is_whole:
                self._read_cut(hit, file)
            return
        end, line, is_behind = raised
        if any(words in end.line for words in _LEAVING):
            return
        found = self._find(end, line, True, True)
        if found and (is_behind or not found[0].tokens or not any(word in end.line for word in self.words)):
            self._add(*found, line, end, file)  # others are found by their own words

    def _read_cut(self, hit: Hit, file: int) -> None:
        """A traceback that breaks off before its exception: its last line, where no logger wrote it."""
        start = read_line(hit.line)
        if start.level in _ERROR_LEVELS or start.level in QUIET or _AGENT in hit.line or is_ignored(hit.before()):
            return
        last, line = hit, start
        for below, read in lines_below(hit):
            if read.writer == start.writer and read.body.strip():
                last, line = below, read
        through = last.before() + last.line.decode("utf-8", "replace")
        self.entry.add_cut(line._replace(body=line.body.strip()), last, file, raised_at(through, line))

    def _rows_for(self, hit: Hit) -> list[tuple[Signature, re.Pattern[str]]]:
        """The rows of which the hit's line holds a token, in order; what our own job quotes is no event."""
        tokens = (JOB_TOKEN,) if JOB_TOKEN in hit.line else hit.tokens
        places = {place for token in tokens if token in hit.line for place in self._places.get(token, ())}
        return [self.rows[place] for place in sorted(places)]

    def _find(self, hit: Hit, line: Line, is_told: bool, is_raised: bool) -> tuple[Signature, re.Match[str]] | None:
        """The first row that knows the line.

        `is_told`: the lines above announced the line, so that it need not hold a token; `is_raised`: a traceback did.
        """
        silent = _INFORMED if line.level in INFORMING else _SPOKEN if line.level in QUIET else ()
        for row, pattern in self.rows if is_told else self._rows_for(hit):
            if (row.role in silent and not row.at_any_level) or not (row.tokens or is_raised):
                continue
            match = pattern.search(line.body)
            if match and line.body.startswith((" ", "\t")) and is_source(line, line_above(hit)):
                continue  # what was raised stands below the traceback
            if match is None or (row.role in ("general", "effect") and _AGENT in hit.line):
                continue
            if row.role in ("origin", "effect") and _OF_SERVICE.search(line.body, 0, match.start()):
                continue  # whom it lost is no rank
            if row.context and not re.search(row.context, hit.before()[-8192:]):
                continue
            return row, match
        return None

    def _try_rows(self, hit: Hit, line: Line, file: int, is_told: bool) -> str | None:
        """The id of the first row that knows the line; its event is added."""
        if any(words in hit.line for words in _LEAVING):
            return None
        found = self._find(hit, line, is_told, False)
        if found is None or found[0].role == "general":
            found = self._find_wrapped(hit, line) or found
        if found is None:
            is_loud = line.level in _ERROR_LEVELS and not line.body.startswith((" ", "\t"))
            is_error = is_loud or (not line.level and _SAYS_ERROR.match(line.body))
            if is_error and not HARMLESS.search(line.body) and not heads_traceback(hit, line):
                self.entry.add_unknown(line, hit, file)
            return None
        row, match = found
        if line.level in QUIET and (row.role == "effect" or (row.role == "origin" and self.entry.steps)):
            self.entry.add_unknown(line, hit, file)  # ranks that lose each other at a good end warn so too
        else:
            self._add(row, match, line, hit, file)
        return row.id

    def _find_wrapped(self, hit: Hit, line: Line) -> tuple[Signature, re.Match[str]] | None:
        """The first row that knows the line together with those above and below that its text was wrapped into."""
        rows = self._rows_for(hit)
        if line.level in QUIET or not rows:
            return None
        text, own = joined(hit, line)
        is_bare = line.body.endswith("Error:") and own.stop < len(text)
        for row, pattern in rows:
            if row.context or (row.role not in _WRAPPED and not (is_bare and row.role == "general")):
                continue
            match = pattern.search(text)
            if match and crosses(match, own):
                return row, match
        return None

    def _add(self, row: Signature, match: re.Match[str], line: Line, hit: Hit, file: int) -> None:
        if is_outlived(hit, line, row.role):
            return
        if may_be_outlived(hit, line, row.role):
            self.entry.add_unknown(line, hit, file)
            return
        if row.id == "preempted" and self.job.ends.get(self.job.attempt) in ("failed", "stopped", "ended-early"):
            return  # the job had ended already, and asked to be started again itself
        groups = {name: value or "" for name, value in match.groupdict().items()}
        own, line = line, of_rank(hit, line) if row.role in _SPOKEN else line
        groups["spawned"] = "" if own.local == line.local else str(line.local)
        groups |= said_around(row.id, hit, line)
        self.entry.add(row, groups, line, hit, file)

    def _read_facts(self, hit: Hit, line: Line) -> None:
        text = hit.line.decode("utf-8", "replace")
        if JOB_TOKEN in hit.line:
            if self.job.read(text.partition("hcp-job: ")[2].lstrip()) == "start":
                self._begin(self.job.attempt)
            return
        if RESTART_TOKEN in hit.line:
            self._begin((self.entry.attempt or 0) + 1)
        if (words := begun(hit.line)) and self.entry.begins_again(words, line.writer[:3], hit.offset):
            self._begin_again()
        is_failed = any(role in _KNOWN or event.signature.id in HANGS for role, event in self.entry.pending.items())
        if over := finished(hit.line, self.entry.steps > 0, is_failed):
            self.entry.finish(over[0], is_elsewhere=over[1])
        self.history.survive(hit.line, line)
        if any(token in hit.line for token in COLLECTIVE_TOKENS):
            self.waits.read(text[:8192], line.rank)
        self.cp.read(text, line.rank, str(self.entry.path))

    def _begin_again(self) -> None:
        """The job was started once more, into the same log."""
        last = self.entry
        last.attempt = last.attempt or 0
        self._begin(last.attempt + 1)
        if all(entry.path == last.path for entry in self.history.files):
            self.waits = CollectiveWaits()  # of the last start alone

    def _begin(self, attempt: int) -> None:
        """An attempt begins in this log. What stands above the first one that a log names is of the one before it."""
        if self.entry.attempt is None:
            self.entry.attempt = attempt - 1 if self.entry.seen and attempt else attempt
        if attempt > self.entry.attempt:
            self.history.begin(attempt)
        self.entry.begins = True
