"""What stands around an exception: where and when it was raised, and whether the program survived it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from hcp.triage.line import Line, When, read_line
from hcp.triage.scan import Hit

_FURTHER = 1 << 16
"""Bytes below an exception in which its process may be seen to go on."""
_FRAME = re.compile(r'\s{0,8}File "(?P<file>[^"]{1,300})", line (?P<line>\d{1,7}), in (?P<name>\S{1,100})')
_OF_TRACEBACK = re.compile(r"(?:[\w.]{1,80}: )?Traceback \(most recent|[\w.]{1,80}(?:Error|Exception)\b|\[Errno ")
_IGNORED = ("Exception ignored in", "--- Logging error ---", "Error in atexit._run_exitfuncs", "NVML Error: ")


def is_ignored(before: str) -> bool:
    """Whether the lines above an exception say that it was survived.

    Python goes on after `Exception ignored in: …`, after an error of its logging, and after those of what it calls at
    the end. nvidia-resiliency-ext logs that it found no NVML (`NVML Error: …`, shared_utils/health_check.py). Ranks
    write such blocks into one another: the exception is survived where as many blocks are said to be as begin.
    """
    begun = survived = 0
    for raw in reversed(before[-8192:].splitlines()[-60:]):
        body = read_line(raw.encode("utf-8", "replace")).body
        begun += "Traceback (most recent" in body
        if body.startswith(_IGNORED) or body.endswith(", in _run_finalizers"):
            survived += 1
            if survived >= begun:
                return True
        elif not body.startswith((" ", "\t")) and not _OF_TRACEBACK.match(body):
            return False
    return False


def raised_at(before: str, line: Line) -> str:
    """Where the exception of a line was raised, by the traceback above it: ` (train.py:9, in main: lock.acquire())`."""
    own = []
    for raw in before[-8192:].splitlines()[-80:]:
        above = read_line(raw.encode("utf-8", "replace"))
        if above.writer == line.writer and above.body.strip(" ~^"):
            own.append(above.body)
    for place in range(len(own) - 1, max(-1, len(own) - 8), -1):
        if frame := _FRAME.search(own[place]):  # behind what no prefix explains
            code = next((said[frame.start() :].strip() for said in own[place + 1 : place + 2]), "")
            name = re.split(r"[/\\]", frame["file"])[-1]
            return f" ({name}:{frame['line']}, in {frame['name']}{': ' + code if code else ''})"
    return ""


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


_LOGGED = ("ERROR", "WARNING", "INFO")
_RAYS_PROCESS = re.compile(rb"[^()\n]{0,20}\(\w{1,80} (pid=\d{1,10}[,)])")
_LOOKED_AT = 40
_GOES_ON = 3
"""So many lines that a process writes after its exception show that it did not end."""


def was_logged(hit: Hit, line: Line) -> bool:
    """Whether a logger wrote the traceback of a line's exception: the program caught it."""
    head = hit.before().rpartition("Traceback (most recent call last)")[0].rpartition("\n")[2]
    return not line.level and read_line(f"{head[-200:]}x".encode("utf-8", "replace")).level in _LOGGED


def goes_on(hit: Hit) -> bool:
    """Whether the process of Ray that wrote a line writes on, and not about the same exception alone."""
    process = _RAYS_PROCESS.match(hit.line)
    if process is None:
        return False
    below = hit.chunk[hit.at + len(hit.line) : hit.at + _FURTHER].split(b"\n")
    own = islice((raw for raw in below if process[1] in raw[:120]), _LOOKED_AT)
    bodies = (read_line(raw).body for raw in own)
    said = (body for body in bodies if body and not body.startswith((" ", "\t")) and not _OF_TRACEBACK.match(body))
    return len(tuple(islice(said, _GOES_ON))) == _GOES_ON


NUMBERS = re.compile(r"\d+")


def behind(tag: tuple[str, ...], body: str) -> int | None:
    """Where a text goes on behind a tag, whose parts numbers separate; None where it doesn't begin with it."""
    at = 0
    for place, part in enumerate(tag):
        if place:
            number = NUMBERS.match(body, at)
            at = number.end() if number else at
        if not body.startswith(part, at):
            return None
        at += len(part)
    return at
