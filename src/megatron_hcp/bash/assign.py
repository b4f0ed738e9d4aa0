"""Assignments and declarations: `NAME=value`, arrays, `export`, `local`, `declare`."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.bash.arith import Undecidable
from megatron_hcp.bash.expand import value, words
from megatron_hcp.bash.state import Var
from megatron_hcp.bash.syntax import ArrayLiteral, Assignment, Declaration, NotUnderstood, ShellWord
from megatron_hcp.bash.value import Field, Hole, Item, Items, Lit, Span, Unseen, Value, text_of
from megatron_hcp.bash.walker import Status, Walker


def assign(w: Walker, node: Assignment, exported: bool = False) -> Status:
    """`NAME=value`, `NAME+=value`, `NAME=(…)`, `NAME[2]=value`."""
    name, span = node.name, w.span(node)
    if node.index is not None:
        _assign_element(w, name, node.index, assigned_value(w, node), span)
        return True
    if isinstance(node.value, ArrayLiteral):
        w.assign_array(name, fields(w, node.value.words), span, append=node.appends)
    else:
        is_known = not isinstance(node.value, NotUnderstood)
        w.assign(name, assigned_value(w, node), span, append=node.appends and is_known)
    if exported or w.exports_all:
        w.vars[name] = w.vars[name]._replace(exported=True)
    return True


def assigned_value(w: Walker, node: Assignment) -> Value:
    """The value of an assignment to a plain variable."""
    if isinstance(node.value, ShellWord):
        return value(w, node.value)
    return (Hole(f"line {w.line(node.value or node)} is not understood", w.span(node)),)


def fields(w: Walker, written: Sequence[ShellWord | NotUnderstood]) -> Items:
    """The words of a command or an array after expansion."""
    found: list[Item] = []
    for word in written:
        if isinstance(word, NotUnderstood):
            found.append(Unseen(f"line {w.line(word)} is not understood", w.span(word)))
        else:
            found += words(w, word)
    return tuple(found)


def _assign_element(w: Walker, name: str, index: ShellWord, found: Value, span: Span) -> None:
    items = w.items_of(name, span)
    try:
        text = text_of(value(w, index))
        place = w.arithmetic(text) if text is not None else -1
    except Undecidable:
        place = -1
    if 0 <= place <= len(items) and all(isinstance(item, Field) for item in items):
        w.assign_array(name, (*items[:place], Field(found, span), *items[place + 1 :]), span)
    else:
        w.assign_array(name, (Unseen(f"an element of {name} is set by a subscript", span),), span)


def declaration(w: Walker, node: Declaration) -> Status:
    """`export`, `local`, `readonly`, `declare`, `typeset`."""
    exports = (node.keyword == "export" and "n" not in node.flags) or "x" in node.flags
    for item in node.items:
        if isinstance(item, ShellWord):
            _assign_text(w, item, exports)
            continue
        if w.locals and node.keyword in ("local", "declare", "typeset"):
            w.locals[-1].setdefault(item.name, w.vars.get(item.name))
        if item.value is None:
            _declare(w, node, item, exports)
            continue
        assign(w, item, exports)
        if "A" in node.flags:
            span = w.span(item)
            w.assign_array(item.name, (Unseen(f"{item.name} is an associative array", span),), span)
    return True


def _declare(w: Walker, node: Declaration, item: Assignment, exports: bool) -> None:
    """A name without a value."""
    name, is_array = item.name, "a" in node.flags
    var = w.vars.get(name)
    if node.keyword == "export":
        if var is not None:
            w.vars[name] = var._replace(exported=exports)
        elif exports:
            w.to_export.add(name)
    elif var is None or node.keyword == "local":
        w.vars[name] = Var(None if is_array else (), () if is_array else None, exports, w.span(item))


def _assign_text(w: Walker, word: ShellWord, exported: bool) -> None:
    """`export "$key"="$value"`."""
    for item in words(w, word):
        name, equals, text = (item.text or "").partition("=") if isinstance(item, Field) else ("", "", "")
        if equals and name.isidentifier():
            w.assign(name, (Lit(text, item.span, False),), item.span, exported=exported)
        elif not isinstance(item, Field) or (item.text is None and "=" not in item.prefix):
            w.takes_in("words that aren't known", "exports" if exported else "declares", item.span)
