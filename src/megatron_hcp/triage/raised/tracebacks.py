"""What stands around an exception: its traceback, and where and when it was raised."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from megatron_hcp.triage.line import Line, When, read_line
from megatron_hcp.triage.number import whole
from megatron_hcp.triage.scan import Hit

HEAD_TEXT = "Traceback (most recent call last)"
HEAD = HEAD_TEXT.encode()
_LONGEST_LINE = 2000
_BEFORE = 8192
"""Bytes above an exception in which its traceback begins."""
_LONGEST_TRACEBACK = 400
"""Lines, with those of other processes between them."""
NEAR = 8
"""So many lines below a traceback's first one, another of it stands."""
_DIGITS = re.compile(r"\d+")
_HEAD = re.compile(r'(?P<logger>.{1,80}?)(?:Traceback \(most recent| {2}File ")')


def line_below(hit: Hit) -> Hit | None:
    """The line below that of a hit; None at the end of what is kept."""
    at = hit.chunk.find(b"\n", hit.at) + 1
    if not at or at >= len(hit.chunk):
        return None
    end = hit.chunk.find(b"\n", at, at + _LONGEST_LINE)
    line = hit.chunk[at : end if end >= 0 else at + _LONGEST_LINE]
    return hit._replace(offset=hit.offset + at - hit.at, number=hit.number + 1, line=line, at=at)


def text_below(hit: Hit) -> Hit | None:
    """The line below that of a hit, or the one after an empty one; None where there is no text, or a traceback."""
    near = islice(lines_below(hit), 2)
    below = next((below for below, line in near if line.body.strip()), None)
    return None if below is None or HEAD in below.line else below


def lines_below(hit: Hit) -> Iterator[tuple[Hit, Line]]:
    """The lines below that of a hit, as many as the longest traceback has."""
    below = line_below(hit)
    for _ in range(_LONGEST_TRACEBACK):
        if below is None:
            return
        yield below, read_line(below.line)
        below = line_below(below)


class Raised(NamedTuple):
    """The line that names the exception of a traceback."""

    hit: Hit
    line: Line
    is_behind: bool
    """Whether something stands before it that is taken off here: a logger's text of unknown form, or an indent."""


def end_of_traceback(start: Hit) -> Raised | None:
    """The end of the traceback that begins at a hit; lines of others are passed over.

    It begins with its head, with a frame where the log lacks the head, or with a line above the frames of another
    process, which need not follow: then there is none. torchrun's report shows it with an indent, frames and all.
    """
    first = read_line(start.line)
    logger = _logger_of(start, first)
    has_frames, is_source = b'File "' in start.line or HEAD in start.line, False
    frames, was_frame = 0, b'File "' in start.line
    for hit, line in lines_below(start):
        own = logger.match(line.body) if logger else None
        if line.writer != first.writer or (logger and not own):
            continue
        body = line.body[own.end() :] if own else line.body
        if body.strip() and not body.strip(" \t~^"):
            continue  # what marks the place in a source line; its indent may be lost
        is_frame, was_source = body.lstrip().startswith('File "'), is_source
        indent = len(body) - len(body.lstrip(" \t"))
        frames = frames or (indent if is_frame else 0)
        is_source = is_frame and not indent and '"<' not in body  # the indents were lost
        has_frames = has_frames or is_frame
        if was_frame and _TAIL.fullmatch(body) and _goes_on(hit, line):
            continue  # a frame's line was wrapped
        was_frame = is_frame
        if body.strip() and not (is_frame or was_source or indent >= (frames or 1)):
            is_behind = logger is not None or indent > 0
            return Raised(hit, line._replace(body=body.strip()), is_behind) if has_frames else None
    return None


_TAIL = re.compile(r'\w{1,80}|[^\s:"]{0,200}(?:", line \d{1,7}, in \S{1,100})?')


def _goes_on(hit: Hit, line: Line) -> bool:
    """Whether below a line its process's traceback goes on with a frame's text, or another frame."""
    below = next((other.body for _, other in lines_below(hit) if other.writer == line.writer), "")
    return below.startswith((" ", "\t")) and bool(below.strip())


_OF_SPAWNED = re.compile(rb"-- Process (\d{1,4}) terminated with the following error:\s{0,4}\Z")
_ABOVE = 64
_OF_RANK = re.compile(rb":? ?\(RANK (\d{1,7})\)")


_FRAME_ABOVE = re.compile(r'(?P<indent>\s*)File "[^"]{1,300}", line \d')


def is_source(line: Line, above: Line) -> bool:
    """Whether a line is the program's own, below a frame of a traceback."""
    frame = _FRAME_ABOVE.match(above.body)
    return frame is not None and len(line.body) - len(line.body.lstrip()) > len(frame["indent"])


def of_rank(hit: Hit, line: Line) -> Line:
    """The line of an exception as that of the rank that its traceback names: torch's distributed checkpoints, and
    others that gather errors, pass on those of other ranks (`Traceback (most recent call last): (RANK 3)`), and
    torch.multiprocessing those of the processes that it started (`-- Process 2 terminated with the following error:`).
    """
    head = hit.chunk.rfind(HEAD, max(0, hit.at - _BEFORE), hit.at)
    if head >= 0 and line.local is None and (spawned := _OF_SPAWNED.search(hit.chunk, max(0, head - _ABOVE), head)):
        return line._replace(local=whole(spawned[1].decode()))
    said = _OF_RANK.match(hit.chunk, head + len(HEAD)) if head >= 0 else None
    if said is None:
        return line
    start = hit.chunk.rfind(b"\n", 0, head) + 1
    first, *between = [read_line(raw) for raw in hit.chunk[start : hit.at].split(b"\n")[:-1]]
    is_own = first.writer == line.writer and all(
        other.body.startswith((" ", "\t")) for other in between if other.writer == line.writer
    )
    return line._replace(rank=whole(said[1].decode())) if is_own else line


def heads_traceback(hit: Hit, line: Line) -> bool:
    """Whether a line only announces its process's traceback below it, whose own end says more."""
    below = line_below(hit)
    if below is None or HEAD not in below.line or read_line(below.line).writer != line.writer:
        return False
    return end_of_traceback(below) is not None


def _logger_of(start: Hit, first: Line) -> re.Pattern[str] | None:
    """What a logger of unknown form writes before each line of a traceback, by its first lines; its numbers change."""
    head = _HEAD.match(first.body)
    if head is None or not head["logger"].strip():
        return None
    logger = re.compile(_DIGITS.sub(r"\\d+", re.escape(head["logger"])))
    near = (logger.match(line.body) for _, line in islice(lines_below(start), NEAR))
    own = next((match for match in near if match), None)
    return logger if own and own.string.startswith((" ", "\t", 'File "'), own.end()) else None


_NAME = re.compile(r"(?:[a-z_]\w*\.)*[A-Z]\w{1,60}(?:Error|Exception)")
_GOES_ON_BELOW = re.compile(
    r"^(?:[\w.]{1,80}\.)?[A-Z]\w{1,60}(?:Error|Exception|Failed): .*(?::|validation errors? for .*)$"
)


def _name_at_end(text: str) -> str:
    """The exception whose name a text ends in; empty where there is none."""
    word = re.split(r"[^\w.]", text)[-1]
    return word if _NAME.fullmatch(word) else ""


def rejoined(hit: Hit, line: Line) -> Line | None:
    """The exception of a line with the text that stands below it; None where none does.

    The text goes on there after a colon; or ranks wrote into each other, and the line ends in the exception's name.
    """
    name = _name_at_end(line.body)
    below = line_below(hit) if name or _GOES_ON_BELOW.match(line.body) else None
    text = read_line(below.line).body.strip() if below else ""
    if name and text == ":" and below and (further := line_below(below)):
        # Several ranks, or a stream without buffer, wrote it in parts.
        text = f": {read_line(further.line).body.strip()}"
    if name and text.startswith(": "):
        another = _name_at_end(text).rpartition(".")[2]  # of the next rank: its text stands still further below
        return line._replace(body=name + text.removesuffix(another))
    if name or not text or text.startswith(("File ", "Traceback ", "During ", "The above ")):
        return None
    return line._replace(body=f"{line.body} {text}")


_LOOKED_THROUGH, _LINES = 8192, 80
"""Bytes and lines above and below a line, in which its rank may state a time."""
_SAME_MOMENT = 10.0
"""Seconds between two lines of a rank, at most, for what stands between them to have happened then."""


def time_around(hit: Hit, line: Line) -> When | None:
    """The time of a line that states none, by its rank's lines just above and below; None where they don't fix it."""
    end = hit.at + len(hit.line)
    below = hit.chunk[end : end + _LOOKED_THROUGH].decode("utf-8", "replace").splitlines()[:_LINES]
    above = hit.before()[-_LOOKED_THROUGH:].splitlines()[-_LINES:]
    first, last = _first_time(reversed(above), line), _first_time(below, line)
    if first is None or last is None or first[:2] != last[:2] or not 0 <= last[2] - first[2] <= _SAME_MOMENT:
        return None
    return first


def _first_time(lines: Iterable[str], line: Line) -> When | None:
    read = (read_line(raw.encode("utf-8", "replace")) for raw in lines)
    return next((other.when for other in read if other.when is not None and other.writer == line.writer), None)
