"""Words and their pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from megatron_hcp.bash.parser import dollar
from megatron_hcp.bash.syntax import (
    ArithmeticExpansion,
    CommandSubstitution,
    NotUnderstood,
    Piece,
    ProcessSubstitution,
    Quoted,
    Quoting,
    ShellWord,
    Text,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_MAX_DEPTH = 60
_DOLLARS = {"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"}
_EXPANSIONS = _DOLLARS | {"string", "raw_string", "ansi_c_string"}
_JOINING = {"concatenation", "command_name", "translated_string"}
_PIECES = _EXPANSIONS | _JOINING | {"process_substitution"}


class Words:
    """Turns nodes into our words. `data` are the script's bytes, of which the parser saw a changed copy."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.substitutions: list[tuple[CommandSubstitution, Node]] = []
        """Those whose statements are still missing, because words don't include them."""
        self._depth = 0

    def text(self, node: Node) -> str:
        """A node's text as it is written."""
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def start(self, node: Node) -> int:
        """Where a node really starts: in a string, the grammar makes the blanks before a `$` part of the expansion."""
        start = node.start_byte
        if node.type in _DOLLARS:
            while start < node.end_byte and self.data[start] not in b"$`":
                start += 1
        return start

    def groups(self, nodes: Iterable[Node]) -> list[list[Node]]:
        """Nodes that together make one word, because no blank separates them.

        The grammar treats a backslash at a line's end as a blank; bash does not: `--a 1\\` before a line that starts
        with `--b` gives `1--b`. And it cuts `$A/$B-$C` into two words.
        """
        groups: list[list[Node]] = []
        end = -1
        for node in nodes:
            start = self.start(node)
            if groups and (start == end or (start == end + 2 and self.data[end:start] == b"\\\n")):
                groups[-1].append(node)
            else:
                groups.append([node])
            end = node.end_byte
        return groups

    def word(self, *group: Node) -> ShellWord:
        """The word of a node, or of nodes that belong together."""
        first, end = group[0], group[-1].end_byte
        if len(group) == 1:
            return ShellWord(first.start_byte, end, self._piece(first, "word"))
        start = self.start(first)
        inner = [part for node in group for part in (node.children if node.type in _JOINING else [node])]
        return ShellWord(start, end, self.pieces([n for n in inner if n.type in _EXPANSIONS], start, end, "word"))

    def pieces(self, nodes: Iterable[Node], start: int, end: int, quoting: Quoting) -> Sequence[Piece]:
        """The bytes [start, end): the expansions among the nodes, and everything between them as text."""
        pieces: list[Piece] = []
        for node in nodes:
            if node.type in _PIECES and (first := self.start(node)) >= start and node.end_byte <= end:
                pieces += dollar.text(self.data, start, first, quoting)
                pieces += self._piece(node, quoting)
                start = node.end_byte
        return pieces + dollar.text(self.data, start, end, quoting)

    def expression(self, node: Node, start: int, end: int) -> Sequence[Piece]:
        """The bytes [start, end) as an arithmetic expression: text, and the outermost expansions below a node."""
        found: list[Node] = []
        stack = node.children[::-1]
        while stack:
            child = stack.pop()
            if child.type in _EXPANSIONS:
                found.append(child)
            else:
                stack += child.children[::-1]
        return self.pieces(found, start, end, "string")

    def _piece(self, node: Node, quoting: Quoting) -> Sequence[Piece]:
        if self._depth == _MAX_DEPTH:
            return [NotUnderstood(node.start_byte, node.end_byte, ())]
        self._depth += 1
        pieces = self._converted(node, self.start(node), node.end_byte, quoting)
        self._depth -= 1
        return pieces

    def _converted(self, node: Node, start: int, end: int, quoting: Quoting) -> Sequence[Piece]:
        kind = node.type
        inside: Quoting = "string" if quoting in ("string", "heredoc") else "word"
        if kind == "string":
            return [Quoted(start, end, self.pieces(node.children, start + 1, end - 1, "string"))]
        if kind == "raw_string":
            edge = 1 if inside == "word" else 0
            return [Quoted(start, end, dollar.text(self.data, start + edge, end - edge, "raw"))]
        if kind in ("simple_expansion", "expansion"):
            return [self._parameter(node, start, inside)]
        # Behind `${x:-`, the grammar takes `$((` for a command substitution with a subshell.
        is_sum = kind == "command_substitution" and dollar.arithmetic_end(self.data, start, end) == end
        if kind == "arithmetic_expansion" or is_sum:
            lead, tail = (2, 1) if self.data.startswith(b"$[", start) else (3, 2)
            return [ArithmeticExpansion(start, end, self.expression(node, start + lead, end - tail))]
        if kind == "command_substitution":
            substitution = CommandSubstitution(start, end)
            self.substitutions.append((substitution, node))
            return [substitution]
        if kind in _JOINING:
            return self.pieces(node.children, start, end, inside)
        if kind == "ansi_c_string":
            return [Text(start + 2, end - 1, "ansi")]
        if kind == "process_substitution":
            return [ProcessSubstitution(start, end)]
        return dollar.text(self.data, start, end, inside)

    def _parameter(self, node: Node, start: int, quoting: Quoting) -> Piece:
        end = node.end_byte
        found = dollar.parameter(self.data, start, end)
        if found is None:
            return NotUnderstood(start, end, ())
        parameter, operand = found
        if sign := parameter.operator:
            inside: Quoting = quoting if sign[-1] in "-=+?" else "string" if sign == ":" else "raw"
            parameter.operand = self.pieces(node.children, operand, end - 1, inside)
        return parameter
