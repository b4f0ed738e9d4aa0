"""Expands words as bash does, as far as possible without running anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from megatron_hcp.bash.arith import Undecidable
from megatron_hcp.bash.params import expansion
from megatron_hcp.bash.reason import of_command
from megatron_hcp.bash.split import MAX_ITEMS, Frag, Splice, assemble, value_of
from megatron_hcp.bash.syntax import (
    ArithmeticExpansion,
    CommandSubstitution,
    NotUnderstood,
    Parameter,
    Piece,
    ProcessSubstitution,
    Quoted,
    ShellWord,
    Text,
)
from megatron_hcp.bash.value import Field, Hole, Item, Lit, Part, Value, cuts, reason_of, text_of
from megatron_hcp.bash.walker import Walker

_What = TypeVar("_What", bound="Part | Splice")
MAX_DEPTH = 50
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
_ESCAPED = {"string": '$`"\\\n', "heredoc": "$`\\\n", "raw": ""}
"""The characters that a backslash quotes in contexts where it does not quote everything."""
_DATE = (
    r"""(?:\$\(|`)date(?: +-u)? +["']?\+["']?(?:[\w:.,/+-]|%-?[abCdDFgGhHIjmMpPqRsSTuUVwWyYzZ%])+["']?"""
    r"""(?: +-u)? *[)`]"""
)
"""One format, of letters that print no blank in any locale (`%A` and `%B` may). `%N` isn't among them: a job takes the
date of a whole second."""
_ESCAPE_OR_MARK = "\\\\([^\U000f0000-\U0010ffff])|[\U000f0000-\U0010ffff]"
_CHANGED = r"(?<!\w)([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)"
"""What changes a variable in arithmetic."""


def words(w: Walker, word: ShellWord) -> list[Item]:
    """The fields that a word becomes, after expansion and splitting."""
    span, text = w.span(word), w.text(word)
    braced = _braced(text) if "{" in text else None
    if braced is not None:
        w.pay(len(braced), 20)
        return [Field((Lit(text, span, False),), span) for text in braced]
    if len(word.pieces) == 1 and type(word.pieces[0]) is Text and "\\" not in text and not w.source.marks:
        return [Field((Lit(text, span, is_home=text[:2] == "~/"),), span)]
    frags = fragments(w, word.pieces)
    if text[:2] == "~/":
        frags[:1] = [frags[0]._replace(what=_at_home(frags[0].what))]
    w.pay(sum(len(what.text) for what, splits in frags if splits and isinstance(what, Lit)), 300)
    items = assemble(frags, span)
    w.pay(len(items), 20)
    return items


def value(w: Walker, word: ShellWord) -> Value:
    """The value of a word in an assignment: nothing is split, and arrays are joined."""
    found = value_of(fragments(w, word.pieces))
    return (_at_home(found[0]), *found[1:]) if w.text(word)[:2] == "~/" else found


def _at_home(part: _What) -> _What:
    return part._replace(is_home=True) if isinstance(part, Lit) else part


def fragments(w: Walker, pieces: Sequence[Piece], quoted: bool = False, splits: bool = False) -> list[Frag]:
    """What the pieces of a word expand to.

    Args:
        w: the script.
        pieces: the pieces.
        quoted: whether they are inside double quotes.
        splits: blanks in their own text end words, as in `${A:-b c}`.
    """
    if w.depth > MAX_DEPTH:
        return [Frag(Hole("the script nests too deeply", w.span(piece)), False) for piece in pieces[:1]]
    w.depth += 1
    w.pay(len(pieces), 10)
    try:
        return [frag for piece in pieces for frag in _EXPANSIONS[type(piece)](w, piece, quoted, splits)]
    finally:
        w.depth -= 1


def _text(w: Walker, piece: Text, quoted: bool, splits: bool) -> list[Frag]:
    """Text. An unquoted mark may stand for text that contains blanks."""
    parts = literal(w, piece)
    unquoted = piece.quoting == "word"
    return [Frag(part, splits or (unquoted and not isinstance(part, Lit))) for part in parts]


def _quoted(w: Walker, piece: Quoted, quoted: bool, splits: bool) -> list[Frag]:
    inner = fragments(w, piece.pieces, quoted=True)
    if any(isinstance(frag.what, Splice) for frag in inner):
        return inner  # "${A[@]}" of an empty array expands to no word at all
    return [Frag(Lit("", w.span(piece), False), False), *inner]


def _parameter(w: Walker, piece: Parameter, quoted: bool, splits: bool) -> list[Frag]:
    return expansion(w, piece, quoted, partial(_operand, w, piece.operand, quoted))


def _operand(w: Walker, pieces: Sequence[Piece], quoted: bool) -> list[Frag]:
    found = fragments(w, pieces, quoted, not quoted)
    if not quoted and found and w.text(pieces[0])[:2] == "~/":
        found[0] = found[0]._replace(what=_at_home(found[0].what))
    return found


def _arithmetic(w: Walker, piece: ArithmeticExpansion, quoted: bool, splits: bool) -> list[Frag]:
    span = w.span(piece)
    try:
        return [Frag(Lit(str(arithmetic(w, piece.pieces)), span, False), False)]
    except Undecidable as error:
        return [Frag(Hole(str(error), span), False)]


def _command_output(w: Walker, piece: CommandSubstitution, quoted: bool, splits: bool) -> list[Frag]:
    date = _date(w.text(piece))
    parts = w.captured(piece)
    if date:
        parts = tuple(part._replace(date=date) if isinstance(part, Hole) else part for part in parts)
    elif len(parts) == 1 and isinstance(part := parts[0], Hole) and part.span == w.span(piece) and w.printed is None:
        from megatron_hcp.bash.run_time import output_of  # few scripts need it

        parts = (part._replace(output=output_of(w, piece)),)
    return [Frag(part, not quoted) for part in parts]


def _date(command: str) -> str:
    """A command substitution that prints the date as one word, as `$(date +%F)`; "" for any other."""
    found = re.fullmatch(_DATE, command) if command.startswith(("$(date ", "`date ")) else None
    return f"$({command.strip('$()`').strip()})" if found else ""


def _process_output(w: Walker, piece: ProcessSubstitution, quoted: bool, splits: bool) -> list[Frag]:
    return [Frag(Hole(of_command(w.line(piece)), w.span(piece)), False)]


def _not_understood(w: Walker, piece: NotUnderstood, quoted: bool, splits: bool) -> list[Frag]:
    return [Frag(Hole(f"{w.text(piece)[:40]} is not understood", w.span(piece)), not quoted)]


_EXPANSIONS: dict[type[Piece], Callable[[Walker, Any, bool, bool], list[Frag]]] = {
    Text: _text,
    Quoted: _quoted,
    Parameter: _parameter,
    ArithmeticExpansion: _arithmetic,
    CommandSubstitution: _command_output,
    ProcessSubstitution: _process_output,
    NotUnderstood: _not_understood,
}


def arithmetic(w: Walker, pieces: Sequence[Piece]) -> int:
    """The value of an arithmetic expression, after expanding what is in it.

    Raises:
        Undecidable: a variable in it is unknown, or it is not understood. What it changes is unknown from then on.
    """
    try:
        expanded = value_of(fragments(w, pieces))
        text = text_of(expanded)
        if text is None:
            raise Undecidable(reason_of(expanded))
        return w.arithmetic(text.replace('"', ""))
    except Undecidable as error:
        for found in re.finditer(_CHANGED, "".join(map(w.text, pieces))):
            w.forget(found[1] or found[2], str(error), w.here)
        raise


def literal(w: Walker, piece: Text) -> list[Part]:
    """Text without quoting backslashes; placeholder marks are replaced with what they stand for."""
    text, marks = w.text(piece), w.source.marks
    w.pay(len(text), 50 if "\\" in text else 1000)
    whole = Lit(text, w.span(piece))
    if piece.quoting == "ansi" and "\\" in text:
        return [Lit(re.sub(r"\\(.)", lambda match: _ANSI.get(match[1], match[1]), text, flags=re.S), whole.span, False)]
    if not marks and (piece.quoting in ("raw", "ansi") or "\\" not in text):
        return [whole]
    parts: list[Part | None] = []
    places: list[tuple[int, int]] = []
    begin = 0
    for stop in re.finditer(_ESCAPE_OR_MARK, text):
        mark, escaped = marks.get(stop[0]), stop[1]
        if mark is None and (escaped is None or escaped not in _ESCAPED.get(piece.quoting, escaped)):
            continue
        if begin < stop.start():
            parts.append(None)
            places.append((begin, stop.start()))
        if mark is not None:
            parts.append(mark)
        begin = stop.start() + 1 if mark is None and escaped != "\n" else stop.end()
    if begin < len(text):
        parts.append(None)
        places.append((begin, len(text)))
    texts = cuts(whole, places)
    return [next(texts) if part is None else part for part in parts]


def _braced(text: str) -> list[str] | None:
    """`{1..4}` and one level of `a{b,c}d`, if nothing in it is quoted or expanded."""
    match = re.fullmatch(r"([^{}]*)\{([^{}]*)\}([^{}]*)", text) if len(text) <= 200 else None
    if match is None or any(char in text for char in "\"'\\$`"):
        return None
    before, inner, after = match.groups()
    options = inner.split(",") if "," in inner else _range(inner)
    return options and [f"{before}{option}{after}" for option in options]


def _range(inner: str) -> list[str] | None:
    """The numbers of `1..4`, `08..10` or `10..1..3`: all as wide as the wider end, if an end starts with a zero."""
    ends = re.fullmatch(r"([+-]?\d{1,9})\.\.([+-]?\d{1,9})(?:\.\.([+-]?\d{1,9}))?", inner)
    if ends is None:
        return None
    first, last, step = int(ends[1]), int(ends[2]), abs(int(ends[3] or 1)) or 1
    if abs(first - last) // step > MAX_ITEMS:
        return None
    is_padded = any(re.match("-?0.", end) for end in ends.groups()[:2])
    width = max(len(ends[1]), len(ends[2])) if is_padded else 0
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [f"{number:0{width}d}" for number in numbers]
