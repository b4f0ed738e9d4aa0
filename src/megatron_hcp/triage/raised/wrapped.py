"""Lines whose text goes on in the next ones, where a terminal, a pipe or an editor broke it off."""

from __future__ import annotations

import re
from itertools import islice

from megatron_hcp.triage.line import NOBODY, QUIET, Line, read_line
from megatron_hcp.triage.raised.tracebacks import lines_below
from megatron_hcp.triage.scan import Hit

_SHORTEST = 60
"""Bytes of the shortest line that is taken for one that was broken off."""
_LOOKED_AT = 2000
_MOST = 2
"""Lines above and below one that are put together with it."""


def line_above(hit: Hit) -> Line:
    """The line above that of a hit; an empty one at the start of what is kept."""
    return read_line(_raw_above(hit)[-1])


def joined(hit: Hit, line: Line) -> tuple[str, range]:
    """The text of a line with what it was broken off from and into, at most two lines above and below it, and the
    place of the line's own text therein."""
    above, below = " ".join(_lead(hit, line)), " ".join(_rest(hit, line))
    text = f"{above} {line.body}" if above else line.body
    own = range(len(text) - len(line.body), len(text))
    return (f"{text} {below}" if below else text), own


def crosses(match: re.Match[str], own: range) -> bool:
    """Whether a match in such a text is partly the line's own, and partly what it was broken off from or into."""
    begin, end = match.span()
    return begin < own.stop and end > own.start and (begin < own.start - 1 or end > own.stop + 1)


def _raw_above(hit: Hit) -> list[bytes]:
    """The lines just above that of a hit, the nearest one last."""
    return hit.chunk[max(0, hit.at - _LOOKED_AT) : hit.at].removesuffix(b"\n").split(b"\n")


def _lead(hit: Hit, line: Line) -> list[str]:
    lead: list[str] = []
    for raw in reversed(_raw_above(hit)[-_MOST:]):
        above = read_line(raw)
        is_broken_off = len(raw) >= _SHORTEST and not above.body.endswith((".", "!"))
        if not is_broken_off or above.level in QUIET or not _may_go_on(above, line):
            break
        lead.insert(0, above.body.strip())
        line = above
    return lead


def _rest(hit: Hit, line: Line) -> list[str]:
    rest: list[str] = []
    length = _SHORTEST
    for at, below in islice(lines_below(hit), _MOST):
        if length < _SHORTEST or not _may_go_on(line, below):
            break
        rest.append(below.body.strip())
        length = len(at.line)
    return rest


def _may_go_on(line: Line, below: Line) -> bool:
    """Whether a line may be the rest of the one above it: it has no prefix, or the same, and is no traceback's."""
    is_of_it = below.writer in (line.writer, NOBODY)
    return is_of_it and not below.level and bool(below.body.strip()) and not below.body.startswith((" ", "\t"))
