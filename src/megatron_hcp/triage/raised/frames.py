"""The frames of a traceback: where an exception was raised, and the lines in which its text goes on."""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

from megatron_hcp.triage.line import Line, read_line
from megatron_hcp.triage.raised.tracebacks import HEAD, HEAD_TEXT, lines_below
from megatron_hcp.triage.scan import Hit

_FRAME = re.compile(r'\s{0,8}File "(?P<file>[^"]{1,300})", line (?P<line>\d{1,7})(?:, in (?P<name>\S{1,100}))?')
"""Of a syntax error, the last frame names no function."""


class Frame(NamedTuple):
    """A frame of a traceback."""

    file: str
    line: int
    name: str
    """Of the function; empty in the frame of a syntax error."""
    code: str
    """The program's text there, as far as the log shows it; its lines are joined."""

    def path(self, parts: int) -> str:
        """The last parts of its file's path; empty where the log shows the program's text alone."""
        return "/".join(re.split(r"[/\\]", self.file)[-parts:])

    @property
    def place(self) -> str:
        """As `torch/optim/adam.py, in step`."""
        return f"{self.path(5)}, in {self.name}"


def frames_above(before: str, line: Line) -> tuple[Frame, ...]:
    """The frames of the traceback of a line's exception, the innermost first; none where no frame stands just above."""
    own = []
    for raw in reversed(before.splitlines()[-_MOST_ABOVE:]):
        above = read_line(raw.encode("utf-8", "replace"))
        if above.writer != line.writer or not above.body.strip(" ~^"):
            continue
        if HEAD_TEXT in above.body:
            break
        own.append(above.body)
    frames, code, since = [], list[str](), 0
    for body in own:
        if frame := _FRAME.search(body):  # behind what no prefix explains
            frames.append(_frame(frame, " ".join(reversed(code))[:_LONGEST_CODE]))
            code, since = [], 0
            continue
        code.append(body.strip())
        since += 1
        if since > _FURTHEST:
            break
    if not frames and own and _SOURCE.match(own[0]) and _NAMED.match(line.body):
        return (Frame("", 0, "", own[0].strip()[:_LONGEST_CODE]),)
    return tuple(frames)


_SOURCE = re.compile(r"\s{4,16}(?:assert|raise|return|[\w.]{1,60} ?[-+*/]?=|[\w.]{1,60}\() ?\S")
_NAMED = re.compile(r"(?:[a-z_]\w{0,40}\.){0,6}[A-Z]\w{2,60}(?:Error|Exception)\b")
_MOST_ABOVE, _LONGEST_CODE, _FURTHEST = 200, 300, 8


def at_text(frames: tuple[Frame, ...]) -> str:
    """Where an exception was raised: ` (train.py:9, in main: lock.acquire())`; empty where no frame is known."""
    if not frames:
        return ""
    frame = frames[0]
    if not frame.file:
        return f" ({frame.code})"
    name = f", in {frame.name}" if frame.name else ""
    return f" ({frame.path(1)}:{frame.line}{name}{': ' + frame.code if frame.code else ''})"


def raised_at(before: str, line: Line) -> str:
    """Where the exception of a line was raised, by the traceback above it."""
    return at_text(frames_above(before, line))


def text_after(hit: Hit, line: Line, frames: tuple[Frame, ...]) -> str:
    """The lines below an exception in which its text goes on: its process's own, without prefix and indent or not;
    below no traceback, only indented ones."""
    found = []
    for below, other in islice(lines_below(hit), _MOST_MORE):
        is_own = other.writer == line.writer and not other.level and other.when is None
        is_own = is_own and (any(frame.file for frame in frames) or other.body.startswith((" ", "\t")))
        if not is_own or not other.body.strip() or _OTHERWISE.match(other.body) or HEAD in below.line:
            break
        found.append(other.body.strip())
    return " ".join(found)


_MOST_MORE = 8
_OTHERWISE = re.compile(
    r"The above exception|During handling|Exception |\W*$|srun: |slurmstepd: |[\w.]{1,80}(?:Error|Exception)\b|"
    r"(?:\x1b\[\d{1,3}m)? ?\[(?:WARNING|INFO|DEBUG)\]"  # DeepSpeed's own, of another matter
)


def last_frame_below(hit: Hit, line: Line) -> str:
    """The innermost frame of the traceback below a line, written as `raised_at` does; empty where there is none."""
    innermost, code = None, ""
    for _, below in lines_below(hit):
        if below.writer != line.writer or not below.body.strip(" ~^"):
            continue
        if frame := _FRAME.match(below.body):
            innermost, code = frame, ""
        elif innermost and not code and below.body.startswith((" ", "\t")):
            code = below.body.strip()
        elif not below.body.startswith((" ", "\t")):
            break
    return at_text((_frame(innermost, code),) if innermost else ())


def _frame(said: re.Match[str], code: str) -> Frame:
    return Frame(said["file"], int(said["line"]), said["name"] or "", code)
