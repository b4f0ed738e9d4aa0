"""Tries the rows of the table on the lines of logs, and keeps what the other lines say about the job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hcp.triage.collectives import TOKENS as COLLECTIVE_TOKENS
from hcp.triage.collectives import CollectiveWaits
from hcp.triage.events import FileEvents
from hcp.triage.is_cp_on import ECHO_TOKEN, GROUP_TOKEN, SPEED_TOKENS, CpEvidence
from hcp.triage.line import QUIET, Line, read_line
from hcp.triage.log_name import read_name
from hcp.triage.logged_job import LoggedJob
from hcp.triage.scan import Hit
from hcp.triage.signatures.progress import DONE, HARMLESS, RAYS, last_words
from hcp.triage.signatures.row import ERROR, Signature
from hcp.triage.signatures.tracebacks import NUMBERS, behind, is_ignored, raised_at

JOB_TOKEN = b"hcp-job: "
_RESTART_TOKEN = b"will restart worker group"
_AGENT = b"torch/distributed/elastic/agent/server/api.py:"
_LAST_ERROR = b"Last error:"
"""Below these words torch prints what NCCL said, in a line that may hold no token."""
_LEAVING = (b"has failed to shutdown the rendezvous", b"has failed to send a keep-alive heartbeat to the rendezvous")
"""The first node to end takes torchrun's store along: agents of a good job that still wait warn so."""
_TRACEBACK = b"Traceback (most recent call last)"
_MARKS = (JOB_TOKEN, *DONE, _RESTART_TOKEN)
_ALWAYS = (*_MARKS, GROUP_TOKEN, ECHO_TOKEN, *SPEED_TOKENS, *COLLECTIVE_TOKENS)
"""Lines with these are read every time: their numbers are what counts."""
_LOUD = (ERROR, b"ERROR", b"FATAL", b"CRITICAL", b"fatal: ")
_SAYS_ERROR = re.compile(
    r"^(?:\S{1,80}: )?(?:ERROR|Error|error|FATAL|Fatal|fatal|CRITICAL)(?: |: )\S|"
    r"^(?!.{0,200}[Ww]arning).{0,200}?\b[A-Z]\w{2,40}(?:Error|Exception): \S"
)
"""A line that says error by itself, without a logger's level; or names an exception behind an unknown prefix."""
_ERROR_LEVELS = frozenset(("E", "F", "ERROR", "CRITICAL", "FATAL", "error", "fatal"))
_SPOKEN = ("cause", "general", "effect")
"""Roles of lines that a logger's level can take back: a warning ended nothing."""
_WRAPPED = ("cause", "origin", "effect")
_CODE = re.compile(r"\s+raise \w")
_FRAME_ABOVE = re.compile(r'\s*File "')
_NUMBER = re.compile(rb"\d{3,}|0x[0-9a-f]+")
_LONGEST_SHAPE, _SHAPES, _ENOUGH = 2000, 20000, 1000
_LONGEST_TRACEBACK = 400
"""Lines, with those of other ranks between them."""
_LONGEST_TAG, _NEAR = 120, 8
_NO_TAG = ("",)
_TAIL = 8192
"""Bytes at the end of a log that are its last words."""
_LASTS = "loss-nan"
"""The signature of a failure that the lines of later steps repeat: they do not show that it is over."""
_TRACEBACKS = 200
"""Of an attempt, so many are read to their end."""


def words_of(rows: Sequence[Signature]) -> tuple[bytes, ...]:
    """What is searched for: a line without one of these says nothing."""
    of_rows = (token for row in rows for token in row.tokens)
    return tuple(dict.fromkeys((*of_rows, *_LOUD, _TRACEBACK, GROUP_TOKEN, ECHO_TOKEN, *_MARKS, *COLLECTIVE_TOKENS)))


def _line_above(hit: Hit) -> str:
    """The text of the line above that of a hit; empty at the start of what is kept."""
    above = hit.chunk[max(0, hit.at - _LONGEST_SHAPE) : hit.at].rstrip(b"\n")
    return read_line(above[above.rfind(b"\n") + 1 :]).body


def _next_line(hit: Hit) -> Hit | None:
    """The line below that of a hit; None at the end of what is kept."""
    at = hit.chunk.find(b"\n", hit.at) + 1
    if not at or at >= len(hit.chunk):
        return None
    end = hit.chunk.find(b"\n", at, at + _LONGEST_SHAPE)
    line = hit.chunk[at : end if end >= 0 else at + _LONGEST_SHAPE]
    return hit._replace(offset=hit.offset + at - hit.at, number=hit.number + 1, line=line, at=at)


def _end_of_traceback(hit: Hit) -> tuple[Hit, Line] | None:
    """The line that names the exception of a traceback that starts at a hit; lines of other ranks are passed over.

    What stands before the traceback's first words is taken off its other lines too, whatever it is: who wrote them
    (numbers apart) is what tells them from other lines.
    """
    start = read_line(hit.line)
    tag = _tag(start.body.partition(_TRACEBACK.decode())[0], _next_line(hit))
    below = _next_line(hit)
    for _ in range(_LONGEST_TRACEBACK):
        if below is None:
            return None
        line = read_line(below.line)
        own = behind(tag, line.body)
        body = "" if own is None else line.body[own:]
        if line.writer == start.writer and body and not body.startswith((" ", "\t")):
            return below, line._replace(body=body)
        below = _next_line(below)
    return None


def _tag(before: str, below: Hit | None) -> tuple[str, ...]:
    """What the lines of a traceback begin with, between its numbers; `before` stands before its first words."""
    if not 0 < len(before) <= _LONGEST_TAG:
        return _NO_TAG
    tag = tuple(NUMBERS.split(before))
    for _ in range(_NEAR):
        if below is not None and (own := behind(tag, body := read_line(below.line).body)):
            return tag if body.startswith((" ", "\t"), own) else _NO_TAG
        below = below and _next_line(below)
    return _NO_TAG


class LineReader:
    """Tries the rows on the lines that were found, and remembers what a repeated line turned out to be.

    A warning that thousands of lines repeat would otherwise cost the whole table every time. Lines count as the same
    if they differ in numbers of three digits and more (times, ids, addresses): the rows look at no such number.
    """

    def __init__(self, rows: list[tuple[Signature, re.Pattern[str]]]) -> None:
        self.rows = rows
        self.words = words_of([row for row, _ in rows])
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
                self.entry.since = 0 if row_id == _LASTS else self.entry.since
            return
        if _TRACEBACK in hit.line:
            self._read_traceback(hit, file)
            return
        told = _next_line(hit) if hit.line.rstrip().endswith(_LAST_ERROR) else None
        hit, shape = (told, b"") if told else (hit, shape)
        line = read_line(hit.line)
        if any(token in hit.line for token in _ALWAYS):
            self._read_facts(hit, line)
            shape = b""
        row_id = self._try_rows(hit, line, file, is_told=told is not None)
        if len(self.known) >= _SHAPES:
            self.known.clear()
        if shape:
            self.known[shape] = row_id

    def close(self, end: Hit, file: int) -> None:
        """Ends a log, at the hit that stands for its end: where no failure is known, its last words are looked at."""
        if self.entry.pending.keys() - {"stall"} or self.entry.over:
            return
        at = max(0, end.at - _TAIL)
        tail = end.chunk[at : end.at]
        if said := last_words(tail):
            place, line = said
            start = at + sum(len(raw) + 1 for raw in tail.split(b"\n")[:place])
            number = end.number - tail.count(b"\n") + place
            hit = end._replace(offset=end.offset - end.at + start, number=number, at=start)
            if not is_ignored(hit.before()):
                self.entry.add_unknown(line, hit, file)

    def _read_traceback(self, hit: Hit, file: int) -> None:
        """The exception of a traceback, where its name holds no word that is searched for."""
        if self.entry.tracebacks >= _TRACEBACKS:
            return
        self.entry.tracebacks += 1
        end = _end_of_traceback(hit)
        if end is None:
            self._read_cut(hit, file)
            return
        raised, line = end
        found = None if any(words in raised.line for words in _LEAVING) else self._find(raised, line, True, True)
        is_tagged = line.body != read_line(raised.line).body
        if found and (is_tagged or not found[0].tokens or not any(word in raised.line for word in self.words)):
            self._add(*found, line, raised, file)  # others are found by their own words

    def _read_cut(self, hit: Hit, file: int) -> None:
        """A traceback that breaks off before its exception: its last line, where no logger wrote it."""
        start = read_line(hit.line)
        if start.level in _ERROR_LEVELS or start.level in QUIET or _AGENT in hit.line or is_ignored(hit.before()):
            return
        last, line, below = hit, start, _next_line(hit)
        for _ in range(_LONGEST_TRACEBACK):
            if below is None:
                break
            read = read_line(below.line)
            if read.writer == start.writer and read.body.strip():
                last, line = below, read
            below = _next_line(below)
        through = last.before() + last.line.decode("utf-8", "replace")
        self.entry.add_cut(line._replace(body=line.body.strip()), last, file, raised_at(through, line))

    def _find(self, hit: Hit, line: Line, is_told: bool, is_raised: bool) -> tuple[Signature, re.Match[str]] | None:
        """The first row that knows the line.

        `is_told`: the lines above announced the line, so that it need not hold a token; `is_raised`: a traceback did.
        """
        is_quiet = line.level in QUIET
        for row, pattern in self.rows:
            if not (is_told or any(token in hit.line for token in row.tokens)) or not (row.tokens or is_raised):
                continue
            if is_quiet and row.role in _SPOKEN and row.role != "effect" and not row.at_any_level:
                continue
            match = pattern.search(line.body)
            if match and _CODE.match(line.body) and _FRAME_ABOVE.match(_line_above(hit)):
                continue  # the source line of a frame: what was raised stands below the traceback
            if match is None or (row.role in ("general", "effect") and _AGENT in hit.line):
                continue
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
            is_error = line.level in _ERROR_LEVELS or (not line.level and _SAYS_ERROR.match(line.body))
            if is_error and not HARMLESS.search(line.body):
                self.entry.add_unknown(line, hit, file)
            return None
        row, match = found
        if line.level in QUIET and (row.role == "effect" or (row.role == "origin" and self.entry.steps)):
            self.entry.add_unknown(line, hit, file)  # ranks that lose each other at a good end warn so too
        else:
            self._add(row, match, line, hit, file)
        return row.id

    def _find_wrapped(self, hit: Hit, line: Line) -> tuple[Signature, re.Match[str]] | None:
        """The first row that knows the line together with the next one, into which its text was wrapped."""
        below = _next_line(hit)
        more = read_line(below.line) if below else line
        if below is None or line.level in QUIET or more.writer != line.writer or not more.body.strip():
            return None
        is_bare = line.body.endswith("Error:") and not more.level and not more.body.startswith((" ", "\t"))
        end, text = len(line.body), f"{line.body} {more.body.strip()}"
        for row, pattern in self.rows:
            if row.role not in _WRAPPED and not (is_bare and row.role == "general"):
                continue
            if not row.context and any(token in hit.line for token in row.tokens):
                match = pattern.search(text)
                if match and match.start() < end < match.end() - 1:
                    return row, match
        return None

    def _add(self, row: Signature, match: re.Match[str], line: Line, hit: Hit, file: int) -> None:
        if row.role in ("cause", "general") and is_ignored(hit.before()):
            return
        if row.id == "preempted" and self.job.ends.get(self.job.attempt) in ("failed", "stopped"):
            return  # the job had ended already, and asked to be started again itself
        groups = {name: value or "" for name, value in match.groupdict().items()}
        self.entry.add(row, groups, line, hit, file)

    def _read_facts(self, hit: Hit, line: Line) -> None:
        text = hit.line.decode("utf-8", "replace")
        if JOB_TOKEN in hit.line:
            if self.job.read(text.partition("hcp-job: ")[2].lstrip()) == "start":
                self._begin(self.job.attempt)
            return
        if _RESTART_TOKEN in hit.line:
            self._begin((self.entry.attempt or 0) + 1)
        for token, over in DONE.items():
            if token in hit.line and (token != RAYS or b"Job '" in hit.line):
                self.entry.forget()
                self.entry.over = over
        if any(token in hit.line for token in COLLECTIVE_TOKENS):
            self.waits.read(text[:8192], line.rank)
        self.cp.read(text, line.rank, str(self.entry.path))

    def _begin(self, attempt: int) -> None:
        """An attempt begins in this log. What stands above the first one that a log names is of the one before it."""
        if self.entry.attempt is None:
            self.entry.attempt = attempt - 1 if self.entry.seen and attempt else attempt
        if attempt > self.entry.attempt:
            self.files.append(FileEvents(self.entry.path, self.entry.name, attempt))
