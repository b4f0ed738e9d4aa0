"""Parameter expansion: `$x`, `${x:-default}`, `"${A[@]}"`, `${#x}`, `${x%.*}`, …"""

from __future__ import annotations

import re
from collections.abc import Callable

from megatron_hcp.bash.arith import Undecidable
from megatron_hcp.bash.pattern import STEP_COST, Node, Pattern
from megatron_hcp.bash.pattern_text import glob
from megatron_hcp.bash.reason import ByVariable, RunTime, WhyUnknown
from megatron_hcp.bash.split import Frag, Splice, value_of
from megatron_hcp.bash.state import State, Var
from megatron_hcp.bash.syntax import Parameter
from megatron_hcp.bash.value import (
    Field,
    Hole,
    Item,
    Items,
    Lit,
    OneOf,
    Part,
    Span,
    Unseen,
    Value,
    as_default,
    joined,
    reason_of,
    substituted,
    text_of,
)

Operand = Callable[[], list[Frag]]
"""Expands the operand, `b` in `${a:-b}`, when bash would; this may set variables."""
_GIVEN = "launch_given"
"""The name under which a job asks whether a value is empty."""
_CONDITIONAL = (":-", "-", ":=", "=", ":+", "+", ":?", "?")


def expansion(w: State, node: Parameter, quoted: bool, operand: Operand) -> list[Frag]:
    """The expansion of a parameter. `quoted`: it is inside double quotes."""
    name, subscript, span = node.name, node.subscript, (w.source, node.start, node.end)
    if node.prefix == "!":
        return _indirect(w, name, subscript, span, quoted)
    if subscript in ("@", "*") or name in ("@", "*"):
        items = w.items_of(name, span)
        return _count(w, items, span) if node.prefix else _array(w, node, items, span, quoted, operand)
    if subscript is None and not node.prefix and not node.operator:
        return _plain(w, name, span, quoted)
    value, is_set = _element(w, name, subscript, span)
    if node.prefix:
        text = text_of(value)
        return [Frag(Lit(str(len(text)), span, False) if text is not None else Hole(reason_of(value), span), False)]
    return _applied(w, node, value, is_set, span, quoted, operand)


def _plain(w: State, name: str, span: Span, quoted: bool) -> list[Frag]:
    if name == "#":
        return _count(w, w.positional or (), span)
    if name in ("?", "$", "!", "-", "_"):
        return [Frag(Hole(f"${name} is known only where the script runs", span), not quoted)]
    value, _ = w.lookup(name, span)
    return [Frag(part, not quoted) for part in substituted(value, span)]


def _count(w: State, items: Items, span: Span) -> list[Frag]:
    w.pay(len(items), 100)
    if all(isinstance(item, Field) for item in items):
        return [Frag(Lit(str(len(items)), span, False), False)]
    return [Frag(Hole("the number of words is not known", span), False)]


def _element(w: State, name: str, subscript: str | None, span: Span) -> tuple[Value, bool]:
    if subscript is None:
        return w.lookup(name, span)
    items = w.items_of(name, span)
    w.pay(len(items), 100)
    try:
        index = w.arithmetic(re.sub(r"\$\{?(\w+)\}?", r"\1", subscript))
    except Undecidable as error:
        return (Hole(str(error), span),), True
    if index < 0 and all(isinstance(item, Field) for item in items):
        index += len(items)
    for place, item in enumerate(items[: index + 1]):
        if not isinstance(item, Field):
            return (Hole(item.reason, span),), True
        if place == index:
            return item.parts, True
    return (), False


def _indirect(w: State, name: str, subscript: str | None, span: Span, quoted: bool) -> list[Frag]:
    if subscript in ("@", "*"):
        items = w.items_of(name, span)
        w.pay(len(items), 20)
        if all(isinstance(item, Field) for item in items):
            numbers = tuple(Field((Lit(str(place), span, False),), span) for place in range(len(items)))
            return [Frag(Splice(numbers), not quoted)]
        return [Frag(Splice((Unseen("the number of words is not known", span),)), False)]
    text = text_of(w.lookup(name, span)[0])
    if text is None or not re.fullmatch(r"[A-Za-z_]\w*", text):
        return [Frag(Hole(f"{name} names a variable that is not known", span), not quoted)]
    return _plain(w, text, span, quoted)


def _array(w: State, node: Parameter, items: Items, span: Span, quoted: bool, operand: Operand) -> list[Frag]:
    sign = node.operator
    if sign in _CONDITIONAL:
        if sign[-1] == "+":
            return operand() if items else []
        if sign[-1] in "-=" and not items:
            return operand()
    elif sign == ":":
        items = _slice(w, items, span, node.name in ("@", "*"), operand)
    elif sign:
        items = tuple(_edited(w, item, sign, span, operand) for item in items)
    if quoted and "*" in (node.name, node.subscript):
        between = text_of(w.vars["IFS"].value or ()) if "IFS" in w.vars else " "
        return [Frag(part, False) for part in joined(items, " " if between is None else between[:1])]
    return [Frag(Splice(items), not quoted)]


def _slice(w: State, items: Items, span: Span, are_arguments: bool, operand: Operand) -> Items:
    """`${A[@]:first:count}`; the arguments count from 1."""
    text = text_of(value_of(operand()))
    try:
        if text is None or not all(isinstance(item, Field) for item in items):
            raise Undecidable("a part of an array is not known")
        first, _, count = text.partition(":")
        start = w.arithmetic(first)
        if are_arguments:
            start = max(0, start - 1)
        return items[start:][: w.arithmetic(count)] if count else items[start:]
    except Undecidable as error:
        return (Unseen(str(error), span),) if items else ()


def _edited(w: State, item: Item, sign: str, span: Span, operand: Operand) -> Field:
    if isinstance(item, Field):
        return Field(_changed(w, item.parts, sign, span, operand), span)
    return Field((Hole("a part of an array is not known", span),), span)


def _applied(
    w: State, node: Parameter, value: Value, is_set: bool, span: Span, quoted: bool, operand: Operand
) -> list[Frag]:
    sign = node.operator
    if not sign:
        return [Frag(part, not quoted) for part in substituted(value, span)]
    if sign not in _CONDITIONAL:
        return [Frag(part, not quoted) for part in _changed(w, value, sign, span, operand)]
    present = is_set if sign[0] != ":" else is_set and _is_filled(value)
    if present is None:
        return [Frag(_either(w, value, sign, operand, span), not quoted)]
    if sign[-1] == "+":
        return operand() if present else []
    if present or sign[-1] == "?":
        return [Frag(part, not quoted) for part in substituted(value, span)]
    frags = operand()
    if not is_set and node.subscript is None and node.name not in w.vars:
        frags = [Frag(part, splits) for what, splits in frags for part in _as_default(what, node.name)]
    if sign[-1] == "=" and node.name.isidentifier():
        w.assign(node.name, value_of(frags), span)
    return frags


def _either(w: State, value: Value, sign: str, operand: Operand, span: Span) -> Part:
    """A value that may be empty, or the other one: the job asks which."""
    found = reason_of(value)
    if sign not in (":-", ":+") or len(value) != 1 or not isinstance(value[0], Hole):
        return Hole(found, span)
    reason = found.saying(found) if isinstance(found, ByVariable) else WhyUnknown(found)
    reason.test = RunTime(f'[ -n "${_GIVEN}" ]', {_GIVEN: Var(value)}, None, frozenset((_GIVEN,)))
    before = dict(w.vars)
    other = value_of(operand())
    for name in [name for name, var in w.vars.items() if var is not before.get(name)]:
        w.forget(name, str(found), span)  # what is in the operand sets it only if bash expands that
    return OneOf((value, other) if sign == ":-" else (other, ()), reason, span)


def _as_default(what: Part | Splice, name: str) -> tuple[Part | Splice, ...]:
    return (what,) if isinstance(what, Splice) else as_default((what,), name)


def _is_filled(value: Value) -> bool | None:
    """Whether a value is not empty; None if unknown."""
    if any(part.text if isinstance(part, Lit) else isinstance(part, Hole) and part.variable for part in value):
        return True
    if not value or all(isinstance(part, Lit) for part in value):
        return False
    if all(isinstance(part, OneOf) for part in value):
        answers = {_is_filled(option) for part in value if isinstance(part, OneOf) for option in part.options}
        return answers.pop() if len(answers) == 1 else None
    return None


def _changed(w: State, value: Value, sign: str, span: Span, operand: Operand) -> Value:
    """`${x%…}`, `${x/…/…}`, `${x:…}`, `${x,,}` on a known text."""
    text = text_of(value)
    if text is None and sign in (",,", "^^"):
        return tuple(
            Lit(_edit(w, part.text, sign, ""), span, False) if isinstance(part, Lit) else Hole(part.reason, span)
            for part in value
        )
    if text is None:
        place = _folder(value, sign, span, operand)
        return (Hole(reason_of(value), span) if place is None else place,)
    w.pay(len(text), 1000)
    argument = text_of(value_of(operand()))
    try:
        if argument is None:
            raise Undecidable("a pattern is not known")
        return (Lit(_edit(w, text, sign, argument), span, False),)
    except Undecidable as error:
        return (Hole(str(error), span),)


def _folder(value: Value, sign: str, span: Span, operand: Operand) -> Hole | None:
    """`${0%/*}`: the script's folder, or one below it."""
    path = value[0].below if len(value) == 1 and isinstance(value[0], Hole) else None
    if sign != "%" or path is None or "/" not in path or text_of(value_of(operand())) != "/*":
        return None
    return Hole(reason_of(value), span, path.rpartition("/")[0])


def _edit(w: State, text: str, sign: str, argument: str) -> str:
    if sign == ",":
        return text[:1].lower() + text[1:]
    if sign == "^":
        return text[:1].upper() + text[1:]
    if sign in (",,", "^^"):
        return text.lower() if sign == ",," else text.upper()
    if sign == ":":
        first, _, count = argument.partition(":")
        start = w.arithmetic(first)
        start = max(0, start + len(text)) if start < 0 else start
        if not count:
            return text[start:]
        length = w.arithmetic(count)
        return text[start : start + length] if length >= 0 else text[start:length]
    if sign in ("#", "##"):
        return text[_length(w, glob(argument), text, longest=sign == "##") or 0 :]
    if sign in ("%", "%%"):
        return _without_end(w, glob(argument), text, longest=sign == "%%")
    if sign in ("/", "//"):
        return _replaced(w, text, argument, every=sign == "//")
    raise Undecidable(f"the operator {sign} is not understood")


def _replaced(w: State, text: str, argument: str, every: bool) -> str:
    pattern, _, replacement = argument.partition("/")
    if pattern[:1] == "#":
        length = _length(w, glob(pattern[1:]), text, longest=True)
        return text if length is None else replacement + text[length:]
    if pattern[:1] == "%":
        length = _length(w, glob(pattern[1:])[::-1], text[::-1], longest=True)
        return text if length is None else text[: len(text) - length] + replacement
    if not pattern:
        return text
    found = Pattern(glob(pattern))
    try:
        if not text:
            return replacement if found.matches("") else ""
        parts: list[str] = []
        place = rest = 0
        while place < len(text):
            end = max(found.ends(text, place), default=place)
            if end == place:
                place += 1
                continue
            parts += [text[rest:place], replacement]
            place = rest = end
            if not every:
                break
        return "".join([*parts, text[rest:]])
    finally:
        w.pay(found.cost, STEP_COST)


def _without_end(w: State, nodes: list[Node], text: str, longest: bool) -> str:
    length = _length(w, nodes[::-1], text[::-1], longest)
    return text[: len(text) - (length or 0)]


def _length(w: State, nodes: list[Node], text: str, longest: bool) -> int | None:
    """How many characters at the start of a text a pattern matches; None if it doesn't match."""
    pattern = Pattern(nodes)
    try:
        ends = pattern.ends(text)
        return max(ends, default=None) if longest else next(ends, None)
    finally:
        w.pay(pattern.cost, STEP_COST)
