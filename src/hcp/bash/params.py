"""Parameter expansion: `$x`, `${x:-default}`, `"${A[@]}"`, `${#x}`, `${x%.*}`, …"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hcp.bash.arith import Undecidable, glob_pattern, is_cheap
from hcp.bash.expand import in_range, start_of, value_of
from hcp.bash.split import Frag, Splice
from hcp.bash.state import State
from hcp.bash.value import (
    Choice,
    Hole,
    Item,
    Items,
    Lit,
    Part,
    Span,
    Unseen,
    Value,
    Word,
    joined,
    reason_of,
    substituted,
    text_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_HEAD = re.compile(rb"\$\{(?P<hash>#(?=[A-Za-z_@*0-9]))?(?P<bang>!)?(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#?$!-])")
_OPERATOR = re.compile(rb":-|:=|:\+|:\?|-|=|\+|\?|##|#|%%|%|//|/|\^\^|\^|,,|,|:|@")


def expansion(m: State, node: Node, quoted: bool) -> list[Frag]:
    """The pieces that `$x` or `${…}` becomes."""
    start = start_of(m, node)
    span = (m.source, start, node.end_byte)
    raw = m.source.data[start : node.end_byte]
    if start in m.source.repairs:
        return [Frag(_repaired(m, raw[3:-2].decode("utf-8", "replace"), span), False)]
    if not raw.startswith(b"${"):
        return _plain(m, raw[1:].decode("utf-8", "replace"), span, quoted)
    head = _HEAD.match(raw)
    if head is None:
        return _unknown(span, quoted)
    name, place = head["name"].decode(), head.end()
    subscript = None
    if raw[place : place + 1] == b"[":
        end = _closing(raw, place)
        subscript = raw[place + 1 : end].decode("utf-8", "replace")
        place = end + 1
    operator = _OPERATOR.match(raw, place) if raw[place : place + 1] != b"}" else None
    if operator is None and place != len(raw) - 1:
        return _unknown(span, quoted)
    operand = (start + (operator.end() if operator else place), node.end_byte - 1)
    sign = operator[0].decode() if operator else ""
    if head["bang"]:
        return _indirect(m, name, subscript, span, quoted)
    if subscript in ("@", "*") or name in ("@", "*"):
        items = m.items_of(name, span)
        if head["hash"]:
            return _count(items, span)
        joins = (subscript or name) == "*" and quoted
        return _array(m, node, items, sign, operand, span, quoted, joins)
    if head["hash"]:
        value, _ = _element(m, name, subscript, span)
        text = text_of(value)
        return [Frag(Lit(str(len(text)), span, False) if text is not None else Hole(reason_of(value), span), False)]
    value, is_set = _element(m, name, subscript, span)
    return _applied(m, node, name, value, is_set, sign, operand, span, quoted)


def _repaired(m: State, text: str, span: Span) -> Part:
    """Arithmetic that the parser did not take for such."""
    plain = re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda match: match[1] or match[2], text)
    try:
        return Lit(str(m.arithmetic(plain)), span, False)
    except Undecidable as error:
        return Hole(str(error), span)


def _plain(m: State, name: str, span: Span, quoted: bool) -> list[Frag]:
    if name in ("@", "*"):
        items = m.items_of(name, span)
        if name == "*" and quoted:
            return [Frag(part, False) for part in joined(items)]
        return [Frag(Splice(items), not quoted)]
    if name == "#":
        return _count(m.positional or (), span)
    if name in ("?", "$", "!", "-", "_"):
        return [Frag(Hole(f"${name} is known only where the script runs", span), not quoted)]
    value, _ = m.lookup(name, span)
    return [Frag(part, not quoted) for part in substituted(value, span)]


def _unknown(span: Span, quoted: bool) -> list[Frag]:
    text = span[0].data[span[1] : span[2]].decode("utf-8", "replace")
    return [Frag(Hole(f"{text[:40]} is not understood", span), not quoted)]


def _closing(raw: bytes, start: int) -> int:
    depth = 0
    for place in range(start, len(raw)):
        if raw[place] == ord("["):
            depth += 1
        elif raw[place] == ord("]"):
            depth -= 1
            if depth == 0:
                return place
    return len(raw) - 1


def _count(items: Items, span: Span) -> list[Frag]:
    if all(isinstance(item, Word) for item in items):
        return [Frag(Lit(str(len(items)), span, False), False)]
    return [Frag(Hole("the number of words is not known", span), False)]


def _element(m: State, name: str, subscript: str | None, span: Span) -> tuple[Value, bool]:
    if subscript is None:
        return m.lookup(name, span)
    items = m.items_of(name, span)
    try:
        index = m.arithmetic(re.sub(r"\$\{?(\w+)\}?", r"\1", subscript))
    except Undecidable as error:
        return (Hole(str(error), span),), True
    if index < 0 and all(isinstance(item, Word) for item in items):
        index += len(items)
    for place, item in enumerate(items[: index + 1]):
        if not isinstance(item, Word):
            return (Hole(item.reason, span),), True
        if place == index:
            return item.parts, True
    return (), False


def _indirect(m: State, name: str, subscript: str | None, span: Span, quoted: bool) -> list[Frag]:
    if subscript in ("@", "*"):
        items = m.items_of(name, span)
        if all(isinstance(item, Word) for item in items):
            numbers = tuple(Word((Lit(str(place), span, False),), span) for place in range(len(items)))
            return [Frag(Splice(numbers), not quoted)]
        return [Frag(Splice((Unseen("the number of words is not known", span),)), False)]
    text = text_of(m.lookup(name, span)[0])
    if text is None or not re.fullmatch(r"[A-Za-z_]\w*", text):
        return [Frag(Hole(f"{name} names a variable that is not known", span), not quoted)]
    return _plain(m, text, span, quoted)


def _array(
    m: State, node: Node, items: Items, sign: str, operand: tuple[int, int], span: Span, quoted: bool, joins: bool
) -> list[Frag]:
    if sign in (":-", "-", ":=", "=") and not items:
        return in_range(m, node.children, *operand, "string" if quoted else "word", not quoted)
    if sign in (":+", "+"):
        return in_range(m, node.children, *operand, "string" if quoted else "word", not quoted) if items else []
    if sign == ":":
        items = _slice(m, node, items, operand, span)
    elif sign and sign not in (":-", "-", ":=", "=", ":?", "?"):
        items = tuple(_edited(m, node, item, sign, operand, span) for item in items)
    if joins:
        return [Frag(part, False) for part in joined(items)]
    return [Frag(Splice(items), not quoted)]


def _slice(m: State, node: Node, items: Items, operand: tuple[int, int], span: Span) -> Items:
    text = text_of(value_of(in_range(m, node.children, *operand, "string"), span))
    try:
        if text is None or not all(isinstance(item, Word) for item in items):
            raise Undecidable("a part of an array is not known")
        first, _, count = text.partition(":")
        start = m.arithmetic(first)
        if m.source.data.startswith((b"${@", b"${*"), span[1]):
            start = max(0, start - 1)
        return items[start:][: m.arithmetic(count)] if count else items[start:]
    except Undecidable as error:
        return (Unseen(str(error), span),) if items else ()


def _edited(m: State, node: Node, item: Item, sign: str, operand: tuple[int, int], span: Span) -> Word:
    if isinstance(item, Word):
        return Word(_changed(m, node, item.parts, sign, operand, span), span)
    return Word((Hole("a part of an array is not known", span),), span)


def _applied(
    m: State,
    node: Node,
    name: str,
    value: Value,
    is_set: bool,
    sign: str,
    operand: tuple[int, int],
    span: Span,
    quoted: bool,
) -> list[Frag]:
    split = not quoted
    if not sign:
        return [Frag(part, split) for part in substituted(value, span)]
    if sign in (":-", "-", ":=", "=", ":+", "+", ":?", "?"):
        present = is_set if sign[0] != ":" else is_set and _is_filled(value)
        if present is None:
            reason = reason_of(value)
            return [Frag(Hole(reason, span), split)]
        if sign[-1] == "+":
            return in_range(m, node.children, *operand, "string" if quoted else "word", split) if present else []
        if present or sign[-1] == "?":
            return [Frag(part, split) for part in substituted(value, span)]
        frags = in_range(m, node.children, *operand, "string" if quoted else "word", split)
        if sign[-1] == "=" and name.isidentifier():
            m.assign(name, value_of(frags, span), span)
        return frags
    return [Frag(part, split) for part in _changed(m, node, value, sign, operand, span)]


def _is_filled(value: Value) -> bool | None:
    """Whether a value is not empty; None = not known."""
    if any(isinstance(part, Lit) and part.text for part in value):
        return True
    if not value or all(isinstance(part, Lit) for part in value):
        return False
    if all(isinstance(part, Choice) for part in value):
        answers = {_is_filled(option) for part in value if isinstance(part, Choice) for option in part.options}
        return answers.pop() if len(answers) == 1 else None
    return None


def _changed(m: State, node: Node, value: Value, sign: str, operand: tuple[int, int], span: Span) -> Value:
    """`${x%…}`, `${x/…/…}`, `${x:…}`, `${x,,}` on a known text."""
    text = text_of(value)
    if text is None:
        return (Hole(reason_of(value), span),)
    argument = text_of(value_of(in_range(m, node.children, *operand, "raw"), span))
    try:
        if argument is None:
            raise Undecidable("a pattern is not known")
        return (Lit(_edit(m, text, sign, argument), span, False),)
    except (Undecidable, re.error) as error:
        return (Hole(str(error), span),)


def _edit(m: State, text: str, sign: str, argument: str) -> str:
    if sign == ",":
        return text[:1].lower() + text[1:]
    if sign == "^":
        return text[:1].upper() + text[1:]
    if sign in (",,", "^^"):
        return text.lower() if sign == ",," else text.upper()
    if sign == ":":
        first, _, count = argument.partition(":")
        start = m.arithmetic(first)
        start = max(0, start + len(text)) if start < 0 else start
        if not count:
            return text[start:]
        length = m.arithmetic(count)
        return text[start : start + length] if length >= 0 else text[start:length]
    if not is_cheap(argument + ("*" if sign[0] in "%/" else ""), text):
        raise Undecidable("a pattern is too long to try")
    if sign in ("#", "##"):
        return re.sub("^(?:" + glob_pattern(argument, sign == "##") + ")", "", text, count=1, flags=re.S)
    if sign in ("%", "%%"):
        return _without_suffix(text, re.compile(glob_pattern(argument), re.S), longest=sign == "%%")
    if sign in ("/", "//"):
        pattern, _, replacement = argument.partition("/")
        front = "^" if pattern[:1] == "#" else ""
        back = "$" if pattern[:1] == "%" else ""
        body = glob_pattern(pattern[1:] if front or back else pattern)
        if not body and not front and not back:
            return text
        return re.sub(front + body + back, lambda _: replacement, text, count=0 if sign == "//" else 1, flags=re.S)
    raise Undecidable(f"the operator {sign} is not understood")


def _without_suffix(text: str, pattern: re.Pattern[str], longest: bool) -> str:
    starts = range(len(text) + 1) if longest else range(len(text), -1, -1)
    for start in starts:
        if pattern.fullmatch(text, start):
            return text[:start]
    return text
