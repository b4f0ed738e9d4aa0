"""Texts of scripts, and the known values of shell variables, each part with its place."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from megatron_hcp.bash.reason import ByVariable, RunTime, WhyUnknown
from megatron_hcp.ground.place import Location
from megatron_hcp.ground.record import NamedTuple

BLANK = " \t\n"


def has_blank(text: str) -> bool:
    """Whether a text has a blank. Written out, since it is asked of every word: three searches beat a loop."""
    return " " in text or "\t" in text or "\n" in text


_STRIDE = 1024
_LATER = bytes(range(0x80, 0xC0))
"""The bytes of a character after its first one, in UTF-8."""
_FIRST_MARK = 0xF0000
"""Private-use characters that stand for unknown parts in a text that is parsed again (`bash -c "$CMD"`)."""


class ScriptText:
    """A text that is parsed, and where its characters come from.

    The file itself, or a text that the script hands to another shell: then `pieces` are the parts that it was put
    together from, with their first bytes, and places lead back to the file.
    """

    def __init__(self, data: bytes, file: str, pieces: Sequence[tuple[int, Part]] = ()) -> None:
        self.data = data
        self.file = file
        self.pieces = pieces
        self.marks: dict[str, Part] = {}
        """Characters that stand for unknown parts."""
        self._starts: list[int] | None = None
        self._sums: list[int] = []
        self._is_ascii = data.isascii()

    def location(self, start: int, end: int) -> Location:
        """The place in the file of the bytes [start, end)."""
        if not self.pieces:
            line, column = self._point(start)
            end_line, end_column = self._point(max(end, start))
            return Location(self.file, line, column, end_line, end_column)
        first = self._from_piece(start, min(end, start + 1))
        last = self._from_piece(max(start, end - 1), end)
        if first.file == last.file and first[1:3] <= last[3:5]:
            return first._replace(end_line=last.end_line, end_column=last.end_column)
        return first

    def _from_piece(self, start: int, end: int) -> Location:
        place = max(0, bisect_right(self.pieces, start, key=lambda piece: piece[0]) - 1)
        offset, part = self.pieces[place]
        source, first, last = part.span
        if isinstance(part, Lit) and part.exact:
            return source.location(min(first + start - offset, last), min(first + max(end, start) - offset, last))
        return source.location(first, last)

    def _point(self, offset: int) -> tuple[int, int]:
        if self._starts is None:
            self._starts = [0, *(match.end() for match in re.finditer(b"\n", self.data))]
        row = bisect_right(self._starts, offset) - 1
        return row + 1, self._characters(offset) - self._characters(self._starts[row]) + 1

    def _characters(self, offset: int) -> int:
        """How many characters start before a byte; counted from the nearest of the sums kept, not from the start."""
        if self._is_ascii:
            return offset
        if not self._sums:
            self._sums = [0]
            for place in range(0, len(self.data), _STRIDE):
                self._sums.append(self._sums[-1] + len(self.data[place : place + _STRIDE].translate(None, _LATER)))
        step = offset // _STRIDE
        return self._sums[step] + len(self.data[step * _STRIDE : offset].translate(None, _LATER))


Span = tuple[ScriptText, int, int]


class Lit(NamedTuple):
    """Known text. `exact`: it is byte for byte the text at `span`."""

    text: str
    span: Span
    exact: bool = True
    default_of: str = ""
    """The variable (or argument, `1`) whose default this text is: the script hasn't set it, whoever starts it may have
    done so. "" if there is none."""
    is_home: bool = False
    """Its `~` at the start stands for the user's home, as bash replaces it where it isn't quoted."""


class Hole(NamedTuple):
    """Unknown text, and why it is unknown."""

    reason: str
    span: Span
    below: str | None = None
    """Of a path: where it leads as seen from the folder of the script (`.`, `./models`)."""
    variable: str = ""
    """The variable that will hold it when the job runs and is never empty; "" if there is none."""
    outside: str = ""
    """The variable, or argument (`1`), that holds it if whoever starts the script sets it; "" if none."""
    date: str = ""
    """The command that prints it, if that is `date`, as `$(date +%F)`: one word, which names a run; "" if none."""
    output: RunTime | None = None  # the command that prints it when the job runs
    taken_in: RunTime | None = None  # what may set `outside`
    is_list: bool = False  # its blanks separate words: it may only be taken unquoted


class OneOf(NamedTuple):
    """One of several texts, depending on a condition that cannot be decided."""

    options: tuple[Value, ...]
    reason: str
    span: Span


Part = Lit | Hole | OneOf
Value = tuple[Part, ...]


class Field(NamedTuple):
    """One word of a command or an array after its expansion: what POSIX calls a field."""

    parts: Value
    span: Span

    @property
    def text(self) -> str | None:
        """The word, or None where a part of it is unknown."""
        if len(self.parts) == 1:  # most words, and asked for often
            part = self.parts[0]
            return part.text if isinstance(part, Lit) else None
        return text_of(self.parts)

    @property
    def prefix(self) -> str:
        """The known text before the first unknown part."""
        known = []
        for part in self.parts:
            if not isinstance(part, Lit):
                break
            known.append(part.text)
        return "".join(known)


class Unseen(NamedTuple):
    """Any number of words that the reader does not know. `scalar`: an unquoted variable, so most likely one word."""

    reason: str
    span: Span
    scalar: bool = False
    outside: str = ""  # as of a Hole, as are the others
    output: RunTime | None = None
    taken_in: RunTime | None = None


class Maybe(NamedTuple):
    """One of several lists of words, depending on an open condition. `is_split`: each is a text that is split."""

    options: tuple[tuple[Item, ...], ...]
    reason: str
    span: Span
    is_split: bool = False


Item = Field | Unseen | Maybe
Items = tuple[Item, ...]


def text_of(value: Iterable[Part]) -> str | None:
    """The text of a value, or None where a part is unknown."""
    texts = []
    for part in value:
        if not isinstance(part, Lit):
            return None
        texts.append(part.text)
    return "".join(texts)


def default_of(value: Iterable[Part]) -> str:
    """The variable whose default a part of the value is; "" if there is none."""
    return next((part.default_of for part in value if isinstance(part, Lit) and part.default_of), "")


def as_default(value: Value, name: str) -> Value:
    """The value as one that a variable has only if nothing outside the script sets it."""
    return tuple(part._replace(default_of=name) if isinstance(part, Lit) else part for part in value)


def reason_of(value: Iterable[Part]) -> str:
    """Why a value is unknown; for a choice between known texts, with the texts."""
    for part in value:
        if isinstance(part, Hole):
            return part.reason
        if isinstance(part, OneOf):
            texts = [text_of(option) for option in part.options]
            known = list(dict.fromkeys(text.strip() for text in texts if text is not None))
            if None not in texts and len(known) > 1 and all(known) and sum(map(len, known)) < 60:
                by = part.reason
                which = ", which " if isinstance(by, WhyUnknown) and by.by == "branch" else ": "
                told = f"is {' or '.join(known)}{which}{by}"
                made = by.saying(told) if isinstance(by, ByVariable) else WhyUnknown(told)
                made.options = tuple(known)
                return made
            return part.reason
    return "unknown"


def substituted(value: Value, site: Span) -> Value:
    """A variable's value as it goes in at `site`: a plain value takes that place, words keep their own."""
    text = text_of(value)
    if text is not None:
        homes = [part.is_home for part in value if isinstance(part, Lit) and part.text]
        if text[:1] == "-" or "=" in text or has_blank(text) or any(homes[1:]):
            return value
        return (Lit(text, site, False, default_of(value), homes[0]),) if text else ()
    if len(value) == 1 and not isinstance(value[0], Lit):
        part = value[0]
        if isinstance(part, Hole) or all("=" not in (text_of(o) or "") for o in part.options):
            return (part._replace(span=site),)
    return value


def union(parts: Sequence[Part], fallback: Span) -> Span:
    """From the first part to the last, where they stand in one text and in order."""
    if not parts:
        return fallback
    first, last = parts[0].span, parts[-1].span
    if first[0] is last[0] and first[1] <= last[2]:
        return (first[0], first[1], max(first[2], last[2]))
    return first


def cut(part: Lit, start: int, end: int) -> Lit:
    """The characters [start, end) of a part, with their own place."""
    return next(cuts(part, [(start, end)]))


def cuts(part: Lit, places: Iterable[tuple[int, int]]) -> Iterator[Lit]:
    """Several stretches of a part, in written order: the bytes before them are counted once."""
    if not part.exact:
        yield from (part._replace(text=part.text[start:end]) for start, end in places)
        return
    source, begin, _ = part.span
    is_ascii, counted = part.text.isascii(), 0
    for start, end in places:
        text = part.text[start:end]
        begin += start - counted if is_ascii else len(part.text[counted:start].encode("utf-8", "replace"))
        stop = begin + (len(text) if is_ascii else len(text.encode("utf-8", "replace")))
        yield part._replace(text=text, span=(source, begin, stop))
        begin, counted = stop, end


def joined(items: Items, separator: str = " ") -> Value:
    """The items as one text, as `"${A[*]}"`, `echo` and `eval` join them."""
    parts: list[Part] = []
    for place, item in enumerate(items):
        if place and separator:
            parts.append(Lit(separator, item.span, False))
        if isinstance(item, Field):
            parts += item.parts
        elif isinstance(item, Unseen):
            parts.append(Hole(item.reason, item.span, None, "", item.outside, "", item.output, item.taken_in, True))
        else:
            options = tuple(joined(option, separator) for option in item.options)
            parts.append(OneOf(options, item.reason, item.span))
    return tuple(parts)


def script_text(value: Value, file: str) -> ScriptText:
    """A value as a text to parse. Unknown parts become single characters, listed in its `marks`."""
    taken = "".join(part.text for part in value if isinstance(part, Lit))
    mark = _FIRST_MARK
    texts: list[str] = []
    pieces: list[tuple[int, Part]] = []
    marks: dict[str, Part] = {}
    offset = 0
    for part in value:
        if isinstance(part, Lit):
            text = part.text
        else:
            while chr(mark) in taken:
                mark += 1
            text = chr(mark)
            marks[text] = part
            mark += 1
        pieces.append((offset, part))
        texts.append(text)
        offset += len(text.encode("utf-8", "replace"))
    whole = ScriptText("".join(texts).encode("utf-8", "replace"), file, pieces)
    whole.marks = marks
    return whole
