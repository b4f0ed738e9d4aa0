"""Texts of a YAML file as values whose parts keep their location in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from megatron_hcp.bash.value import Hole, Lit, Part, ScriptText, Span, Value, cut
from megatron_hcp.launch.forms.yaml.nodes import List, Map, Node, Scalar

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""What ends a line for libyaml, as its line numbers count them."""
_REFERENCE = re.compile(r"\$(\$?)\(([A-Za-z_][\w.-]*)\)")


class Texts:
    """The scalars of one text: a file, or what a script hands to kubectl."""

    def __init__(self, script: ScriptText) -> None:
        self.script = script
        self.text = text = script.data.decode("utf-8", "replace")
        self._starts = [0, *(match.end() for match in _BREAK.finditer(text))]

    def span(self, node: Node) -> Span:
        """A node's place."""
        place = node.location
        return self._bytes(self._offset(place.line, place.column), self._offset(place.end_line, place.end_column))

    def value(self, node: Node) -> Value:
        """A scalar's text; its parts have the location where they are written, also the lines of a block."""
        return tuple(self._marked(self._value(node))) if self.script.marks else self._value(node)

    def _marked(self, value: Value) -> Iterator[Part]:
        """The parts, with what the marks of a script's text stand for."""
        for part in value:
            if not isinstance(part, Lit):
                yield part
                continue
            begin = 0
            for place, char in enumerate(part.text):
                if char in self.script.marks:
                    yield from (cut(part, begin, place),) if place > begin else ()
                    yield self.script.marks[char]
                    begin = place + 1
            yield from (cut(part, begin, len(part.text)),) if begin < len(part.text) else ()

    def _value(self, node: Node) -> Value:
        first, last = (
            self._offset(*place) for place in (node.location[1:3], (node.location.end_line, node.location.end_column))
        )
        raw = self.text[first:last]
        if not isinstance(node, Scalar):
            return (Hole("found a list or a mapping where text is wanted", self.span(node)),)
        text = node.value if isinstance(node.value, str) else raw.strip("\"'")
        if raw[:1] == "|":
            return self._block(text, raw, first)
        start = first + (raw[:1] in ("'", '"'))
        if self.text.startswith(text, start):
            return (Lit(text, self._bytes(start, start + len(text))),) if text else ()
        return (Lit(text, self.span(node), False),)

    def _block(self, text: str, raw: str, first: int) -> Value:
        """The lines of a literal block, each with its location, without indentation."""
        parts: list[Part] = []
        written = raw.split("\n")
        starts = [first]
        for line in written:
            starts.append(starts[-1] + len(line) + 1)
        for number, line in enumerate(text.split("\n"), 1):
            if number > 1:
                parts.append(Lit("\n", self._bytes(starts[min(number, len(starts)) - 1], starts[-1]), False))
            if not line:
                continue
            if number >= len(written) or not written[number].rstrip("\r").endswith(line):
                return (Lit(text, self._bytes(first, first + len(raw)), False),)
            end = starts[number] + len(written[number].rstrip("\r"))
            parts.append(Lit(line, self._bytes(end - len(line), end)))
        return tuple(parts)

    def _offset(self, line: int, column: int) -> int:
        return min(self._starts[min(line, len(self._starts)) - 1] + column - 1, len(self.text))

    def _bytes(self, first: int, last: int) -> Span:
        if self.text.isascii():
            return (self.script, first, last)
        before = len(self.text[:first].encode("utf-8", "replace"))
        return (self.script, before, before + len(self.text[first:last].encode("utf-8", "replace")))


def expanded(value: Value, variables: dict[str, Value | None]) -> Value:
    """A word of `command` or `args`, with `$(NAME)` replaced by the container's variables as Kubernetes does."""
    parts: list[Part] = []
    for part in value:
        if not isinstance(part, Lit) or "$(" not in part.text:
            parts.append(part)
            continue
        begin = 0
        for match in _REFERENCE.finditer(part.text):
            known = variables.get(match[2])
            if match[1] or known is None:
                continue
            parts += [cut(part, begin, match.start()), *known]
            begin = match.end()
        parts.append(cut(part, begin, len(part.text)))
    return tuple(part for part in parts if not isinstance(part, Lit) or part.text)


def child(node: Node | None, *path: str) -> Node | None:
    """The node below a path of keys; None if there is none."""
    for key in path:
        node = node.items.get(key) if isinstance(node, Map) else None
    return node


def items_of(node: Node | None) -> list[Node]:
    """The entries of a list; empty for anything else."""
    return list(node.items) if isinstance(node, List) else []


def word(node: Node | None) -> str:
    """A scalar as plain text; "" if it isn't one."""
    return str(node.value) if isinstance(node, Scalar) and node.value is not None else ""


def number(node: Node | None, default: int | None) -> int | None:
    """A whole number; None for anything else."""
    if node is None:
        return default
    text = word(node)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else None
