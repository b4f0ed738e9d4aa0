"""A finding for a terminal: the line of the launch that it is about, with the place marked."""

from __future__ import annotations

import shutil
import unicodedata
from typing import NamedTuple

from megatron_hcp.cli.reports.text import COLOURS, headline
from megatron_hcp.cli.reports.words import details_of, fix_text
from megatron_hcp.cli.screen import Line, Part
from megatron_hcp.ground.place import Location
from megatron_hcp.ground.secrets import without_secrets
from megatron_hcp.ground.visible import visible
from megatron_hcp.judge.report import Finding, Report

_TAB = 4
_CUT = "..."


def finding_view(report: Report, finding: Finding) -> list[Line]:
    """A headline, the source line with the value underlined, what was found and expected, and the fixes."""
    lines: list[Line] = [headline(report, finding, finding.problem.message)]
    place, text = finding.location, report.launch.reading.text
    if place is not None and text is not None and place.file == report.launch.reading.target:
        lines += _excerpt(text, place, COLOURS[finding.severity])
    for name, detail in zip(("found", "expected"), details_of(finding)):
        if detail:
            lines.append((Part(f"    {name + ':':<9} ", bold=True), detail))
    for number, fix in enumerate(finding.fixes):
        label = "    or:       " if number else "    fix:      "
        lines.append((Part(label, "green", bold=True), f"{fix_text(report.launch, fix)}  # {fix.effect}"))
    return [*lines, ""]


class Excerpt(NamedTuple):
    """A source line as a terminal shows it, and the columns of the underline."""

    text: str
    start: int
    length: int


def excerpt(line: str, column: int, end_column: int, width: int) -> Excerpt:
    """The line, at most `width` columns of it around the span (1-based, the end exclusive).

    Tabs become spaces, unprintable characters are escaped, and a wide character counts as two columns.
    """
    first = min(max(column - 1, 0), len(line))
    last = min(max(end_column - 1, first), len(line))
    # No character further away can be shown; a line may have millions of them.
    cut = max(0, first - width)
    near = line[cut : first + width]
    first, last = first - cut, min(last - cut, len(near))
    cells: list[tuple[str, int]] = []  # how each character is shown, and its columns
    for letter in near:
        shown = " " * _TAB if letter == "\t" else visible(letter)
        cells.append((shown, sum(map(_columns, shown))))
    begin, end = 0, len(cells)
    if len(near) < len(line) or sum(size for _, size in cells) > width:
        begin, end = _window(cells, first, last, width)
    before = _CUT if cut + begin else ""
    after = _CUT if cut + end < len(line) else ""
    text = before + "".join(shown for shown, _ in cells[begin:end]) + after
    start = len(before) + sum(size for _, size in cells[begin:first])
    return Excerpt(text, start, max(sum(size for _, size in cells[first : min(last, end)]), 1))


def _window(cells: list[tuple[str, int]], first: int, last: int, width: int) -> tuple[int, int]:
    """The characters to show: the span, and as much on both sides as there is room for."""
    room = max(width - 2 * len(_CUT), 10)
    end, used = first, 0
    while end < last and used + cells[end][1] <= room:
        used += cells[end][1]
        end += 1
    begin, left, right = first, 0, 0
    while True:
        before = cells[begin - 1][1] if begin else room + 1
        after = cells[end][1] if last <= end < len(cells) else room + 1
        if used + min(before, after) > room:
            return begin, end
        if used + after > room or (left <= right and used + before <= room):
            begin, left, used = begin - 1, left + before, used + before
        else:
            end, right, used = end + 1, right + after, used + after


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _excerpt(text: str, place: Location, colour: str) -> list[Line]:
    source = text.split("\n")
    if place.line > len(source):
        return []
    line = source[place.line - 1].rstrip("\r")
    if without_secrets(line) != line:
        return []
    number = str(place.line)
    gutter = " " * len(number)
    end = place.end_column if place.end_line == place.line else len(line) + 1
    shown = excerpt(line, place.column, end, shutil.get_terminal_size((100, 24)).columns - len(number) - len(" | ") - 1)
    return [
        (Part(f"{gutter} |", "blue"),),
        (Part(f"{number} | ", "blue"), shown.text),
        (Part(f"{gutter} | ", "blue"), " " * shown.start, Part("^" * shown.length, colour, bold=True)),
    ]
