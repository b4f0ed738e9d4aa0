"""Finds the lines of a chunk of a log that tell of the training's course: each kind of line is judged once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from megatron_hcp.triage.course.idle import SKIPPED, Idle, Idling
from megatron_hcp.triage.course.kinds import LONGEST, NO_COUNTER, LineKind, counted, kind_of, states_no_number

DELETED = b"0123456789 .+-"
"""What differs between lines of one kind: figures, and the blanks that align them."""
_LINE_ENDS = bytes.maketrans(b"\r", b"\n")
_PIECE = 1 << 17
"""Bytes that are taken apart at a time: memory stays small."""
_KINDS = 30_000
_DIFFERENT = 3
"""So many lines that state a loss, each another, show that the program ran, though they count no step."""
_FEW = 2
"""So many kinds of a piece's lines that tell something are looked for one by one."""
_LABELLED = re.compile(rb"\s{0,12}:|\[default\]:|\[,?\]<std")
"""The kind of a line that a launcher labels with its task or rank."""
_DIGITS = re.compile(rb"\d+")
_RUN = re.compile(rb"[^\s\d.+-]{4,60}")


class Marks(NamedTuple):
    """Of a chunk: where lines of steps start, and of metrics that are numbers or none; whether the program ran."""

    steps: list[int]
    finite: list[int]
    not_finite: list[int]
    tokens: set[bytes]
    """Of what is searched for, what its lines may hold."""
    is_labelled: bool = False
    """Whether a launcher may have labelled one of its lines with a rank or task."""
    lines: int = 0
    """How many line ends it has."""
    runs: bool = False
    idle: Idle | None = None
    """What shows, so far, that the training learns nothing."""
    last_step: bytes = b""
    """The last line of a step."""


class _Known(NamedTuple):
    kind: LineKind | None
    not_finite: bool
    tokens: tuple[bytes, ...] = ()
    """Of what is searched for, what such a line may hold."""
    anchor: bytes = b""
    """The longest word of the line: where it stands, such a line may be."""
    is_labelled: bool = False
    """Whether a launcher may have labelled it with its rank or task."""


_NOTHING = _Known(None, False)


class Kinds:
    """The kinds of lines that a job's logs hold: those that differ in figures alone are one.

    Logs have few, and ranks write the same ones: each is looked at once, and most lines not at all.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.known: dict[int, _Known] = {}
        self.tokens = [(token, token.translate(None, DELETED)) for token in tokens]

    def of(self, shapes: set[bytes], own: list[bytes], text: bytes) -> dict[bytes, _Known]:
        """Of the shapes of a text's lines, `own`, those that say anything."""
        known = self.known
        if len(known) > _KINDS:
            known.clear()
        if new := [shape for shape in shapes if hash(shape) not in known]:
            samples = dict(zip(reversed(own), reversed(text.split(b"\n"))))
            held = self._held(new, samples)
            for shape in new:
                line = samples[shape][:LONGEST]
                kind, not_finite, tokens = kind_of(line), states_no_number(line), held.get(shape, ())
                is_told = kind is not None or not_finite
                anchor = max(_RUN.findall(line), key=len, default=b"") if is_told else b""
                found = _Known(kind, not_finite, tokens, anchor, _LABELLED.match(shape) is not None)
                known[hash(shape)] = _NOTHING if found == _NOTHING else found
        return {shape: found for shape in shapes if (found := known[hash(shape)]) is not _NOTHING}

    def _held(self, shapes: Sequence[bytes], samples: dict[bytes, bytes]) -> dict[bytes, tuple[bytes, ...]]:
        """The tokens that lines of these shapes may hold; one with digits, where a digit stands at its place."""
        text, held = b"\n".join(shapes), dict[bytes, tuple[bytes, ...]]()
        for token, stripped in self.tokens:
            if stripped not in text:
                continue
            digits = _DIGITS.sub(b"0", token)
            for shape in shapes:
                if stripped in shape and (token == digits or digits in _DIGITS.sub(b"0", samples[shape])):
                    held[shape] = (*held.get(shape, ()), token)
        return held


class Course:
    """What the lines of one log tell of the training's course."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self.counters: dict[bytes, int] = {}
        """Counter -> its value where it was seen first; -1: it has grown since."""
        self.figures: set[int] = set()
        """Lines that state a loss and count nothing."""
        self.idling = Idling()

    def read(self, chunk: bytes, begin: int, end: int) -> Marks:
        """The marks of `chunk[begin:end]`."""
        marks, at = Marks([], [], [], set()), begin
        while at < end:
            stop = end if at + _PIECE >= end else chunk.rfind(b"\n", at, at + _PIECE) + 1
            stop = stop or min(end, at + _PIECE)
            marks = self._mark(chunk[at:stop], at, marks)
            at = stop
        return marks._replace(idle=self.idling.said())

    def _mark(self, piece: bytes, begin: int, marks: Marks) -> Marks:
        """The marks with those of a piece, which starts at `begin`."""
        lines = -1
        if b"\r" in piece:
            lines, piece = piece.count(b"\n"), piece.translate(_LINE_ENDS)
        own = piece.translate(None, DELETED).split(b"\n")
        said = self.kinds.of(set(own), own, piece)
        is_labelled = marks.is_labelled or any(known.is_labelled for known in said.values())
        lines = marks.lines + (lines if lines >= 0 else len(own) - 1)
        for known in said.values():
            marks.tokens.update(known.tokens)
        told = {shape: known for shape, known in said.items() if known.kind or known.not_finite}
        runs, idling, last = marks.runs, self.idling, marks.last_step
        for start, line, known in _places(piece, own, told):
            kind = known.kind
            if known.not_finite:
                marks.not_finite.append(begin + start)
            elif kind and kind.is_finite:
                marks.finite.append(begin + start)
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
                marks.steps.extend([begin + start] * times)
                last = line if times else last
        return marks._replace(runs=runs, last_step=last, is_labelled=is_labelled, lines=lines)

    def _grown(self, kind: LineKind, line: bytes) -> int:
        """How many steps a line reports whose counter must have grown: with the first that shows it, the one before."""
        first = self.counters.get(kind.counter)
        if first == -1:
            return 1
        if kind.counter == NO_COUNTER:
            self.figures.add(hash(line))
            self.counters[kind.counter] = -1 if len(self.figures) >= _DIFFERENT else 0
            return 0
        value = counted(line)
        if value is None:
            return 0
        if first is None or value <= first:
            self.counters[kind.counter] = value
            return 0
        self.counters[kind.counter] = -1
        return 2


def _places(piece: bytes, own: list[bytes], told: dict[bytes, _Known]) -> Iterable[tuple[int, bytes, _Known]]:
    """The lines of the told shapes, in order, each with where it starts; `own` are the shapes of all lines."""
    if len(told) <= _FEW and all(known.anchor for known in told.values()):
        places = [place for shape, known in told.items() for place in _found(piece, shape, known)]
        return places if len(told) == 1 else sorted(places, key=itemgetter(0))
    lines = piece.split(b"\n")
    ends = list(accumulate(map(len, lines), initial=0))
    told_places = [place for place, shape in enumerate(own) if shape in told]
    return ((ends[place] + place, lines[place], told[own[place]]) for place in told_places)


def _found(piece: bytes, shape: bytes, known: _Known) -> Iterator[tuple[int, bytes, _Known]]:
    """The lines of one shape, found by its longest word: far quicker than taking all lines apart."""
    at = piece.find(known.anchor)
    while at >= 0:
        start, end = piece.rfind(b"\n", 0, at) + 1, piece.find(b"\n", at)
        line = piece[start:] if end < 0 else piece[start:end]
        if line.translate(None, DELETED) == shape:
            yield start, line, known
        at = piece.find(known.anchor, end) if end >= 0 else -1
