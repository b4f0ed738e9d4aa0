"""The tree under construction: finds the conversion of each node, and notes where the script sets which variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from megatron_hcp.bash.parser.words import Words
from megatron_hcp.bash.syntax import NotUnderstood, Statement

if TYPE_CHECKING:
    from tree_sitter import Node

_MAX_DEPTH = 70
SETTERS = {"read", "mapfile", "readarray", "getopts", "printf", "let"}
"""Commands that set the variables among their words."""


class Tree(Words):
    """Turns tree-sitter's nodes into our statements by a table of conversions, one for each type of node."""

    def __init__(self, data: bytes, table: Mapping[str, Callable[[Tree, Node], Statement]]) -> None:
        super().__init__(data)
        self.table = table
        self.assigned: list[tuple[int, str]] = []
        """(place, name) of each assignment."""
        self._nesting = 0

    def block(self, nodes: Iterable[Node]) -> list[Statement]:
        """The statements among the nodes."""
        return [self.one(node) for node in nodes if node.is_named and node.type != "comment"]

    def one(self, node: Node) -> Statement:
        """A node as a statement."""
        convert = self.table.get(node.type)
        if convert is None or self._nesting == _MAX_DEPTH:
            return self.not_understood(node)
        self._nesting += 1
        statement = convert(self, node)
        self._nesting -= 1
        return statement

    def not_understood(self, node: Node) -> NotUnderstood:
        """A node that becomes no statement; what it assigns is noted."""
        self.note_assigned(node)
        return NotUnderstood(node.start_byte, node.end_byte, ())

    def note_assigned(self, *nodes: Node) -> None:
        """Notes what is assigned in nodes that are not converted."""
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node.type == "command":
                self.note_set(node)
            elif node.type in ("variable_assignment", "for_statement"):
                name = node.child_by_field_name("name") or node.child_by_field_name("variable")
                self.assigned.append((node.start_byte, self.text(name).partition("[")[0] if name else ""))
            stack += node.named_children

    def note_set(self, command: Node) -> None:
        """Notes what a command like `read` sets."""
        words = [self.text(child) for child in command.named_children if child.type != "variable_assignment"]
        if words and words[0] in SETTERS:
            self.assigned += [(command.start_byte, word) for word in words[1:] if word.isidentifier()]
