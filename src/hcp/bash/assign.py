"""Assignments: `NAME=value`, arrays, `export`, `local`, `declare`, `unset`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hcp.bash.arith import Undecidable
from hcp.bash.expand import group_words, grouped, joint_fragments, value, value_of, words
from hcp.bash.state import Var
from hcp.bash.value import Hole, Item, Lit, Span, Unseen, Value, Word, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

    from hcp.bash.walker import Machine


def assign(m: Machine, node: Node, exported: bool = False, rest: Sequence[Node] = ()) -> str:
    """Walks `NAME=value`, `NAME+=value`, `NAME=(…)`, `NAME[2]=value`; gives the name back.

    `rest` are nodes that continue the value after a backslash at a line's end.
    """
    name_node, content = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name_node is None:
        return ""
    span = m.span(node)
    append = any(child.type == "+=" for child in node.children)
    if name_node.type == "subscript":
        inner = name_node.child_by_field_name("name")
        name = (inner.text or b"").decode("utf-8", "replace") if inner is not None else ""
        _assign_element(m, name, name_node, value(m, content) if content is not None else (), span)
        return name
    name = (name_node.text or b"").decode("utf-8", "replace")
    if content is not None and content.type == "array":
        items: list[Item] = []
        children = [child for child in content.children if child.is_named and child.type != "comment"]
        for group in grouped(m, children):
            if group[0].type == "ERROR":
                items.append(Unseen(f"line {m.line(group[0])} is not understood", m.span(group[0])))
            else:
                items += group_words(m, group)
        m.assign_array(name, tuple(items), span, append=append)
    elif content is not None and content.has_error and any(child.type == "ERROR" for child in content.children):
        m.assign(name, (Hole(f"line {m.line(content)} is not understood", span),), span)
    else:
        if rest:
            found = value_of(joint_fragments(m, [content, *rest] if content is not None else rest), span)
        else:
            found = value(m, content) if content is not None else ()
        m.assign(name, found, span, append=append)
    if exported or m.exports_all:
        m.vars[name] = m.vars[name]._replace(exported=True)
    return name


def _assign_element(m: Machine, name: str, node: Node, found: Value, span: Span) -> None:
    index_node = node.child_by_field_name("index")
    items = m.items_of(name, span)
    try:
        text = text_of(value(m, index_node)) if index_node is not None else None
        index = m.arithmetic(text) if text is not None else -1
    except Undecidable:
        index = -1
    if 0 <= index <= len(items) and all(isinstance(item, Word) for item in items):
        m.assign_array(name, (*items[:index], Word(found, span), *items[index + 1 :]), span)
    else:
        m.assign_array(name, (Unseen(f"an element of {name} is set by a subscript", span),), span)


def declaration(m: Machine, node: Node) -> bool | None:
    keyword = node.children[0].type
    flags = "".join(
        (child.text or b"").decode("utf-8", "replace")
        for child in node.named_children
        if child.type == "word" and (child.text or b"")[:1] == b"-"
    )
    exports = (keyword == "export" and "n" not in flags) or "x" in flags
    for child in node.named_children:
        if child.type == "variable_assignment":
            name_node = child.child_by_field_name("name")
            if name_node is not None:
                _localize(m, keyword, (name_node.text or b"").decode("utf-8", "replace"))
            name = assign(m, child, exports)
            if "A" in flags:
                m.assign_array(name, (Unseen(f"{name} is an associative array", m.span(child)),), m.span(child))
        elif child.type == "variable_name":
            name = (child.text or b"").decode("utf-8", "replace")
            _localize(m, keyword, name)
            var = m.vars.get(name)
            if var is None and exports and keyword == "export":
                m.to_export.add(name)
            elif var is not None and keyword == "export":
                m.vars[name] = var._replace(exported=exports)
            elif keyword != "export" and (var is None or keyword == "local"):
                m.vars[name] = Var(None if "a" in flags else (), () if "a" in flags else None, exports, m.span(child))
        elif child.type in ("concatenation", "string", "word"):
            _assign_text(m, child, exports)
    return True


def _localize(m: Machine, keyword: str, name: str) -> None:
    if m.locals and keyword in ("local", "declare", "typeset"):
        m.locals[-1].setdefault(name, m.vars.get(name))


def _assign_text(m: Machine, node: Node, exported: bool) -> None:
    """`export "$key"="$value"`."""
    for item in words(m, node):
        name, equals, text = (item.text or "").partition("=") if isinstance(item, Word) else ("", "", "")
        if equals and name.isidentifier():
            m.assign(name, (Lit(text, item.span, False),), item.span, exported=exported)


def unset(m: Machine, node: Node) -> bool | None:
    span = m.span(node)
    for child in node.named_children:
        for item in words(m, child):
            name = item.text if isinstance(item, Word) else None
            if name and name.isidentifier():
                m.vars[name] = Var(None, None, True, span)  # known to be absent, also for the programs started
    return True


def assigned_names(node: Node) -> list[str]:
    """The names of the variables that are assigned anywhere below a node."""
    names: dict[str, None] = {}
    stack = [node]
    while stack:
        current = stack.pop()
        kind = current.type
        if kind in ("variable_assignment", "for_statement"):
            found = current.child_by_field_name("name" if kind == "variable_assignment" else "variable")
            if found is not None and found.type == "subscript":
                found = found.child_by_field_name("name")
            if found is not None:
                names[(found.text or b"").decode("utf-8", "replace")] = None
        elif kind == "command":
            parts = [(child.text or b"").decode("utf-8", "replace") for child in current.named_children]
            if parts and parts[0] in ("read", "mapfile", "readarray", "getopts", "printf", "let"):
                names |= {part: None for part in parts[1:] if part.isidentifier()}
        stack.extend(current.named_children)
    return list(names)
