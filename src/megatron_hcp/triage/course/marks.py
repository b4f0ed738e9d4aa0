"""Finds the lines of a chunk of a log that tell of the training's course: each kind of line is judged once."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from megatron_hcp.triage.course.idle import SKIPPED, Idle, Idling
from megatron_hcp.triage.course.kinds import LONGEST, LineKind, counted, kind_of, states_no_number

DELETED = b"0123456789 .+-"
"""What differs between lines of one kind: figures, and the blanks that align them."""
_LINE_ENDS = bytes.maketrans(b"\r", b"\n")
_PIECE = 1 << 19
"""Bytes that are taken apart at a time: memory stays small."""
_KINDS = 30_000


class Marks(NamedTuple):
    """Of a chunk: where lines of steps start, and of metrics that are numbers or none; whether the program ran."""

    steps: list[int]
    finite: list[int]
    not_finite: list[int]
    runs: bool
    idle: Idle | None
    """What shows, so far, that the training learns nothing."""
    last_step: bytes = b""
    """The last line of a step."""


class _Known(NamedTuple):
    kind: LineKind | None
    not_finite: bool


class Course:
    """What the lines of one log tell of the training's course.

    Lines that differ in figures alone are of one kind: a log has few, so that few lines are looked at.
    """

    def __init__(self) -> None:
        self.known: dict[int, _Known] = {}
        self.counters: dict[bytes, int] = {}
        """Counter -> its value where it was seen first; -1: it has grown since."""
        self.idling = Idling()

    def read(self, text: bytes, begin: int) -> tuple[Marks, set[bytes]]:
        """The marks of a chunk's text that starts at `begin`, and all kinds of its lines."""
        marks, shapes, at = Marks([], [], [], False, None), set[bytes](), 0
        while at < len(text):
            end = len(text) if at + _PIECE >= len(text) else text.rfind(b"\n", at, at + _PIECE) + 1
            end = end or min(len(text), at + _PIECE)
            piece = text[at:end].translate(_LINE_ENDS)
            own = piece.translate(None, DELETED).split(b"\n")
            shapes.update(own)
            marks = self._mark(piece.split(b"\n"), own, begin + at, marks)
            at = end
        return marks._replace(idle=self.idling.said()), shapes

    def _mark(self, lines: list[bytes], shapes: list[bytes], begin: int, marks: Marks) -> Marks:
        known, runs, idling, last = self.known, marks.runs, self.idling, marks.last_step
        if len(known) > _KINDS:
            known.clear()
        hashes = list(map(hash, shapes))
        kinds = set(hashes)
        for shape in kinds - known.keys():
            line = lines[hashes.index(shape)][:LONGEST]
            known[shape] = _Known(kind_of(line), states_no_number(line))
        told = {shape for shape in kinds if known[shape] != _NOTHING}
        if not told:
            return marks
        ends = list(accumulate(map(len, lines), initial=begin))
        for place in [place for place, shape in enumerate(hashes) if shape in told]:
            line, shape, start = lines[place], hashes[place], ends[place] + place
            kind, is_bad = known[shape]
            if is_bad:
                marks.not_finite.append(start)
            elif kind and kind.is_finite:
                marks.finite.append(start)
            if kind is None:
                continue
            if kind.is_step and kind.is_finite:
                idling.skipped = 0
                idling.last.append(line)
            elif kind.is_step and SKIPPED in line:
                idling.add(line)
            times = self._grown(kind, line) if kind.counter else 1
            runs = runs or times > 0
            if kind.is_step:
                marks.steps.extend([start] * times)
                last = line if times else last
        return marks._replace(runs=runs, last_step=last)

    def _grown(self, kind: LineKind, line: bytes) -> int:
        """How many steps a line reports whose counter must have grown: with the first that shows it, the one before."""
        first = self.counters.get(kind.counter)
        if first == -1:
            return 1
        value = counted(line)
        if value is None:
            return 0
        if first is None or value <= first:
            self.counters[kind.counter] = value
            return 0
        self.counters[kind.counter] = -1
        return 2


_NOTHING = _Known(None, False)
