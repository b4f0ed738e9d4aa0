"""Simple commands, assignments, declarations and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from megatron_hcp.bash import syntax
from megatron_hcp.bash.parser import dollar
from megatron_hcp.bash.parser.tree import SETTERS, Tree
from megatron_hcp.bash.syntax import ShellWord, Statement

if TYPE_CHECKING:
    from tree_sitter import Node

_NESTING = {"binary_expression", "unary_expression", "parenthesized_expression", "negated_command"}


def command(tree: Tree, node: Node) -> Statement:
    """A simple command, grouped with the standalone assignments before it."""
    groups = tree.groups(
        child for child in node.children if child.type not in ("file_redirect", "heredoc_redirect", "comment")
    )
    own = _own_assignments(tree, groups)
    found: list[Statement] = [assignment(tree, *group) for group in groups[:own]]
    name = node.child_by_field_name("name")
    if name is not None and own < len(groups):
        plain = name.named_children[0] if name.named_child_count == 1 else name
        if plain.type == "arithmetic_expansion" and tree.text(plain).startswith("(("):
            found.append(arithmetic(tree, plain))  # how the grammar 0.23 reads `((A > 4))`
        else:
            found.append(_simple(tree, node, plain, groups[own:]))
    return found[0] if len(found) == 1 else syntax.BraceGroup(node.start_byte, node.end_byte, found)


def _own_assignments(tree: Tree, groups: Sequence[Sequence[Node]]) -> int:
    """How many of the leading assignments stand alone.

    The grammar counts `A=1 B=2` on a line of its own to the command on the next line, and a value that goes on after a
    backslash to a command too.
    """
    own = 0
    for place, group in enumerate(groups):
        if group[0].type != "variable_assignment":
            break
        if place + 1 == len(groups):
            return place + 1
        if has_line_end(tree.data[group[-1].end_byte : groups[place + 1][0].start_byte]):
            own = place + 1
    return own


def has_line_end(gap: bytes) -> bool:
    """Whether a line ends between two words, other than after a backslash."""
    return b"\n" in gap.replace(b"\\\n", b"")


def _simple(tree: Tree, node: Node, name: Node, groups: Sequence[Sequence[Node]]) -> Statement:
    found = syntax.Command(node.start_byte, node.end_byte, tree.text(name) if name.type == "word" else "")
    for group in groups:
        child, kind = group[0], group[0].type
        if kind == "variable_assignment":
            found.assignments.append(_prefix(tree, child))
        elif kind == "command_name" and len(group) == 1:
            found.words.append(tree.word(name))
        elif kind == "herestring_redirect":
            found.stdin = here_string(tree, child)
        elif kind == "ERROR" or child.is_missing:
            found.words.append(tree.not_understood(child))
        elif child.is_named or kind == "$":
            found.words.append(tree.word(*group))
    if found.name in SETTERS:
        tree.note_set(node)
    return found


def _prefix(tree: Tree, node: Node) -> syntax.Assignment:
    """An assignment in front of a command, where even an array is plain text."""
    found = assignment(tree, node)
    if isinstance(found.value, syntax.ArrayLiteral):
        start, end = found.value.start, found.value.end
        found.value = ShellWord(start, end, dollar.text(tree.data, start, end, "word"))
    return found


def here_string(tree: Tree, redirect: Node) -> ShellWord | None:
    return tree.word(redirect.named_children[0]) if redirect.named_children else None


def assignment(tree: Tree, node: Node, *rest: Node) -> syntax.Assignment:
    """`rest` are nodes that continue the value after a backslash at a line's end."""
    name, index = node.child_by_field_name("name"), None
    if name is not None and name.type == "subscript":
        index = name.child_by_field_name("index")
        name = name.child_by_field_name("name")
    end = rest[-1].end_byte if rest else node.end_byte
    found = syntax.Assignment(node.start_byte, end, tree.text(name) if name else "", _value(tree, node, rest))
    found.index = tree.word(index) if index is not None else None
    found.appends = any(child.type == "+=" for child in node.children)
    tree.assigned.append((found.start, found.name))
    return found


def _value(tree: Tree, node: Node, rest: Sequence[Node]) -> syntax.AssignedValue:
    content = node.child_by_field_name("value")
    if content is None:
        return tree.word(*rest) if rest else ShellWord(node.end_byte, node.end_byte, ())
    if content.type == "array":
        groups = tree.groups(child for child in content.named_children if child.type != "comment")
        words = [tree.not_understood(g[0]) if g[0].type == "ERROR" else tree.word(*g) for g in groups]
        return syntax.ArrayLiteral(content.start_byte, content.end_byte, words)
    if content.has_error and any(child.type == "ERROR" for child in content.children):
        return tree.not_understood(content)
    return tree.word(content, *rest)


def assignments(tree: Tree, node: Node) -> Statement:
    return syntax.BraceGroup(node.start_byte, node.end_byte, tree.block(node.children))


_DECLARED = ("concatenation", "string", "word", "command_substitution", "simple_expansion", "expansion")
"""Words that hold assignments, or turn into some: `export $(cat .env)`."""


def declaration(tree: Tree, node: Node) -> Statement:
    options = [tree.text(child) for child in node.named_children if child.type == "word"]
    flags = "".join(option for option in options if option.startswith("-"))
    found = syntax.Declaration(node.start_byte, node.end_byte, tree.text(node.children[0]), flags)
    for child in node.named_children:
        if child.type == "variable_assignment":
            found.items.append(assignment(tree, child))
        elif child.type == "variable_name":
            found.items.append(syntax.Assignment(child.start_byte, child.end_byte, tree.text(child), None))
        elif child.type in _DECLARED:
            found.items.append(tree.word(child))
    return found


def unset(tree: Tree, node: Node) -> Statement:
    found = syntax.Command(node.start_byte, node.end_byte, "unset")
    found.words += map(tree.word, (node.children[0], *node.named_children))
    return found


def arithmetic(tree: Tree, node: Node) -> Statement:
    """`((…))`; a `!` may stand before it."""
    start = tree.data.index(b"((", node.start_byte) + 2
    expression = tree.expression(node, start, node.end_byte - 2)
    return syntax.ArithmeticCommand(node.start_byte, node.end_byte, expression)


def condition(tree: Tree, node: Node) -> Statement:
    """The grammar's own nesting is not used: it reads `a = b && -n c` as `a = (b && -n c)`."""
    if node.children and node.children[0].type == "((":
        return arithmetic(tree, node)
    tokens: list[str | ShellWord] = []
    stack = node.children[-2:0:-1]
    while stack:
        child = stack.pop()
        if child.type in _NESTING:
            stack += child.children[::-1]
        elif child.type == "test_operator" or not child.is_named:
            tokens.append(tree.text(child))
        elif child.type != "comment":
            tokens.append(tree.word(child))
    return syntax.Condition(node.start_byte, node.end_byte, tokens)
