"""Words of a script as bash expands them, as far as that can be told without running anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hcp.bash.arith import Undecidable
from hcp.bash.split import MAX_ITEMS, Frag, Splice, assemble
from hcp.bash.state import State
from hcp.bash.value import (
    Hole,
    Item,
    Lit,
    Part,
    Span,
    Value,
    Word,
    cut,
    joined,
    reason_of,
    substituted,
    text_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH = 50
_DOLLARS = {"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"}
_JOINING = {"concatenation", "command_name"}
_LOOSE = re.compile(rb"\\.|\$(?:\{(\w+)\}|([A-Za-z_]\w*|[0-9]))", re.S)
_EXPANSIONS = _DOLLARS | {"string", "raw_string", "ansi_c_string"}
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
_QUOTED_ESCAPES = {"string": '$`"\\\n', "heredoc": "$`\\\n"}


def words(m: State, node: Node) -> list[Item]:
    """The words that a word node becomes, after expansion and splitting."""
    span = (m.source, node.start_byte, node.end_byte)
    kind = node.type
    if kind == "word" and not m.source.marks:
        text = node.text or b""
        if b"\\" not in text:
            return [Word((Lit(text.decode("utf-8", "replace"), span),), span)]
    frags = fragments(m, node, False)
    if kind in ("concatenation", "brace_expression"):
        braced = _braces(m, node, frags, span)
        if braced is not None:
            return braced
    return assemble(frags, span)


def grouped(m: State, nodes: Iterable[Node]) -> list[list[Node]]:
    """Nodes that make one word together, because no blank is between them.

    The grammar takes a backslash at a line's end for a blank; bash does not: `--a 1\\` before a line that starts with
    `--b` gives `1--b`. And it cuts `$A/$B-$C` into two words.
    """
    groups: list[list[Node]] = []
    end = -1
    for node in nodes:
        start = start_of(m, node)
        if groups and (start == end or (start == end + 2 and m.source.data[end:start] == b"\\\n")):
            groups[-1].append(node)
        else:
            groups.append([node])
        end = node.end_byte
    return groups


def group_words(m: State, group: Sequence[Node]) -> list[Item]:
    """The words of nodes that belong together."""
    if len(group) == 1:
        return words(m, group[0])
    return assemble(joint_fragments(m, group), (m.source, start_of(m, group[0]), group[-1].end_byte))


def joint_fragments(m: State, group: Sequence[Node]) -> list[Frag]:
    """The pieces of nodes that belong together."""
    inner = [part for node in group for part in (node.children if node.type in _JOINING else [node])]
    expansions = [part for part in inner if part.type in _EXPANSIONS]
    return in_range(m, expansions, start_of(m, group[0]), group[-1].end_byte, "word")


def value(m: State, node: Node) -> Value:
    """The value that a word node has in an assignment: nothing is split, arrays are joined."""
    return value_of(fragments(m, node, False), (m.source, node.start_byte, node.end_byte))


def start_of(m: State, node: Node) -> int:
    """Where a node really starts: in a string, the grammar counts the blanks before a `$` to the expansion."""
    start, data = node.start_byte, m.source.data
    if node.type in _DOLLARS:
        while start < node.end_byte and data[start] not in b"$`":
            start += 1
    return start


def value_of(frags: Iterable[Frag], span: Span) -> Value:
    parts: list[Part] = []
    for what, _ in frags:
        if isinstance(what, Splice):
            parts += joined(what.items)
        else:
            parts.append(what)
    return tuple(parts)


def fragments(m: State, node: Node, quoted: bool) -> list[Frag]:
    """The pieces of a word node. `quoted`: it stands inside double quotes."""
    if m.depth > MAX_DEPTH:
        return [Frag(Hole("the script nests too deeply", (m.source, node.start_byte, node.end_byte)), False)]
    m.depth += 1
    try:
        return _fragments(m, node, quoted)
    finally:
        m.depth -= 1


def _fragments(m: State, node: Node, quoted: bool) -> list[Frag]:
    kind = node.type
    start, end = start_of(m, node), node.end_byte
    if kind == "string":
        inner = in_range(m, node.children, start + 1, end - 1, "string")
        if any(isinstance(frag.what, Splice) for frag in inner):
            return inner  # "${A[@]}" of an empty array is no word at all
        return [Frag(Lit("", (m.source, start, end), False), False), *inner]
    if kind in ("simple_expansion", "expansion"):
        return m.expansion(node, quoted)
    if kind == "raw_string":
        first, last = (start, end) if quoted else (start + 1, end - 1)
        return [
            Frag(Lit("", (m.source, start, end), False), False),
            *(Frag(part, False) for part in literal(m, first, last, "raw")),
        ]
    if kind == "command_substitution":
        return [Frag(part, not quoted) for part in m.captured(node)]
    if kind == "arithmetic_expansion":
        return [Frag(_arithmetic(m, node), False)]
    if kind in ("concatenation", "translated_string", "command_name"):
        return in_range(m, node.children, start, end, "string" if quoted else "word")
    if kind == "ansi_c_string":
        return [Frag(_ansi(m, start + 2, end - 1), False)]
    if kind == "process_substitution":
        return [
            Frag(Hole("the output of a command is not known: commands are never run", (m.source, start, end)), False)
        ]
    return _literal_frags(m, start, end, "string" if quoted else "word", False)


def in_range(m: State, children: Sequence[Node], start: int, end: int, mode: str, split: bool = False) -> list[Frag]:
    """The bytes [start, end): the expansions among `children` expanded, everything else as text.

    `mode` says which backslashes count: word, string (double quotes), heredoc, raw. `split`: the text's own blanks
    end words.
    """
    frags: list[Frag] = []
    place = start
    for child in children:
        first, last = start_of(m, child), child.end_byte
        if first < place or last > end or not child.is_named or last == first:
            continue
        if child.type in ("string_content", "heredoc_content", "special_variable_name", "variable_name"):
            continue
        if mode != "word" and child.type in ("word", "number", "ERROR"):
            continue
        if first > place:
            frags += _literal_frags(m, place, first, mode, split)
        if split and child.type in ("word", "number", "concatenation"):
            frags += in_range(m, child.children, first, last, mode, split)
        else:
            frags += fragments(m, child, mode in ("string", "heredoc"))
        place = last
    if place < end:
        frags += _literal_frags(m, place, end, mode, split)
    return frags


def _literal_frags(m: State, start: int, end: int, mode: str, split: bool) -> list[Frag]:
    """Text as pieces. A mark without quotes was text with blanks of its own, as it may be."""
    frags: list[Frag] = []
    data = m.source.data
    for match in _LOOSE.finditer(data, start, end) if mode != "raw" and b"$" in data[start:end] else ():
        name = match[1] or match[2]
        if name:  # a `$x` that the grammar did not take for an expansion
            span = (m.source, *match.span())
            frags += [Frag(part, split) for part in literal(m, start, match.start(), mode)]
            frags += (Frag(part, mode == "word") for part in substituted(m.lookup(name.decode(), span)[0], span))
            start = match.end()
    frags += [
        Frag(part, split or (mode == "word" and not isinstance(part, Lit))) for part in literal(m, start, end, mode)
    ]
    return frags


def literal(m: State, start: int, end: int, mode: str) -> list[Part]:
    """The bytes [start, end) as text, without the backslashes that quote; marks become what they stand for."""
    text = m.source.data[start:end].decode("utf-8", "replace")
    whole = Lit(text, (m.source, start, end))
    marks = m.source.marks
    if ("\\" not in text or mode == "raw") and not marks:
        return [whole] if text else []
    removable = _QUOTED_ESCAPES.get(mode)
    parts: list[Part] = []
    begin = place = 0
    while place < len(text):
        char = text[place]
        if (
            char == "\\"
            and mode != "raw"
            and place + 1 < len(text)
            and (removable is None or text[place + 1] in removable)
        ):
            if begin < place:
                parts.append(cut(whole, begin, place))
            begin = place + (2 if text[place + 1] == "\n" else 1)
            place += 2
        elif char in marks:
            if begin < place:
                parts.append(cut(whole, begin, place))
            parts.append(marks[char])
            place += 1
            begin = place
        else:
            place += 1
    if begin < len(text):
        parts.append(cut(whole, begin, len(text)))
    return parts


def _arithmetic(m: State, node: Node) -> Part:
    start, end = start_of(m, node), node.end_byte
    lead, tail = (2, 1) if m.source.data.startswith(b"$[", start) else (3, 2)
    span = (m.source, start, end)
    try:
        return Lit(str(m.arithmetic(arithmetic_text(m, node, start + lead, end - tail))), span, False)
    except Undecidable as error:
        return Hole(str(error), span)


def arithmetic_text(m: State, node: Node, start: int, end: int) -> str:
    """The text of an arithmetic expression with its `$x` expanded.

    Raises:
        Undecidable: a variable in it is unknown.
    """
    inner = [child for child in _expansions(node) if child.start_byte >= start and child.end_byte <= end]
    expanded = value_of(in_range(m, inner, start, end, "string"), (m.source, start, end))
    text = text_of(expanded)
    if text is None:
        raise Undecidable(reason_of(expanded))
    return text.replace('"', "")


def _expansions(node: Node) -> list[Node]:
    """The outermost expansions below a node, in the order of the text."""
    found: list[Node] = []
    stack = list(reversed(node.children))
    while stack:
        child = stack.pop()
        if child.type in _EXPANSIONS:
            found.append(child)
        else:
            stack.extend(reversed(child.children))
    return found


def _ansi(m: State, start: int, end: int) -> Lit:
    text = m.source.data[start:end].decode("utf-8", "replace")
    span = (m.source, start, end)
    if "\\" not in text:
        return Lit(text, span)
    return Lit(re.sub(r"\\(.)", lambda match: _ANSI.get(match[1], match[1]), text, flags=re.S), span, False)


def _braces(m: State, node: Node, frags: list[Frag], span: Span) -> list[Item] | None:
    """`{1..4}` and one level of `a{b,c}d`, where the braces are unquoted and everything is known."""
    raw = (node.text or b"").decode("utf-8", "replace")
    if "{" not in raw or any(char in raw for char in "\"'\\$`") or len(raw) > 200:
        return None
    match = re.fullmatch(r"([^{}]*)\{([^{}]*)\}([^{}]*)", raw)
    if match is None:
        return None
    inner = match[2].split(",")
    if len(inner) == 1:
        ends = re.fullmatch(r"(-?\d{1,9})\.\.(-?\d{1,9})", match[2])
        if ends is None or abs(int(ends[1]) - int(ends[2])) > MAX_ITEMS:
            return None
        first, last = int(ends[1]), int(ends[2])
        inner = [str(n) for n in (range(first, last + 1) if first <= last else range(first, last - 1, -1))]
    return [Word((Lit(match[1] + text + match[3], span, False),), span) for text in inner]
