"""Statements that contain statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from megatron_hcp.bash import syntax
from megatron_hcp.bash.parser import dollar
from megatron_hcp.bash.parser.commands import arithmetic, here_string
from megatron_hcp.bash.parser.tree import Tree
from megatron_hcp.bash.syntax import NotUnderstood, ShellWord, Statement

if TYPE_CHECKING:
    from tree_sitter import Node

_CLAUSES = ("elif_clause", "else_clause")
_BEHIND_HEREDOC = {"pipeline", "command", "list", "variable_assignment", "compound_statement", "test_command"}
_OUTPUTS = {">", ">>", ">|", "&>", ">&"}


def error(tree: Tree, node: Node) -> Statement:
    found = [one for one in tree.block(node.children) if not isinstance(one, NotUnderstood) or one.statements]
    return NotUnderstood(node.start_byte, node.end_byte, found)


def group(tree: Tree, node: Node) -> Statement:
    if node.children and node.children[0].type == "((":
        return arithmetic(tree, node)
    return syntax.BraceGroup(node.start_byte, node.end_byte, tree.block(node.children))


def subshell(tree: Tree, node: Node) -> Statement:
    return syntax.Subshell(node.start_byte, node.end_byte, tree.block(node.children))


def pipeline(tree: Tree, node: Node) -> Statement:
    return syntax.Pipeline(node.start_byte, node.end_byte, tree.block(node.children))


def negation(tree: Tree, node: Node) -> Statement:
    text = tree.text(node)[1:].strip()
    is_arithmetic = text.startswith("((") and text.endswith("))")  # the grammar reads `! ((…))` as two subshells
    found = [arithmetic(tree, node)] if is_arithmetic else tree.block(node.children)
    return syntax.Negation(node.start_byte, node.end_byte, found)


def and_or(tree: Tree, node: Node) -> Statement:
    rest: list[tuple[str, Statement]] = []
    first = node
    while first.type == "list" and len(first.children) >= 3:
        rest.append((first.children[1].type, tree.one(first.children[-1])))
        first = first.children[0]
    return syntax.AndOr(node.start_byte, node.end_byte, tree.one(first), rest[::-1])


def redirected(tree: Tree, node: Node) -> Statement:
    """The grammar puts what follows `<<EOF` on its line into the redirection."""
    statement = node.child_by_field_name("body")
    found = syntax.Redirected(node.start_byte, node.end_byte, tree.one(statement) if statement is not None else None)
    for redirect in node.children_by_field_name("redirect"):
        files = [redirect]
        if redirect.type == "heredoc_redirect":
            _restore_dash(tree, found.statement, redirect)
            files = [child for child in redirect.children if child.type == "file_redirect"]
            found.stdin = _here_document(tree, redirect)
            found.following += map(tree.one, (child for child in redirect.children if child.type in _BEHIND_HEREDOC))
        elif redirect.type == "herestring_redirect":
            found.stdin = here_string(tree, redirect)
            continue
        found.outputs += [tree.word(target) for file in files for target in _targets(tree, file)]
        if redirect.type == "file_redirect" and isinstance(found.statement, syntax.Command):
            # The grammar takes the words behind the file for more files; to bash, they are the command's.
            found.statement.words += map(tree.word, redirect.children_by_field_name("destination")[1:])
        found.appends = found.appends or any(child.type == ">>" for file in files for child in file.children)
    return found


def _restore_dash(tree: Tree, statement: Statement | None, redirect: Node) -> None:
    """Gives a command the word `-` in front of `<<EOF`, which the grammar drops."""
    if isinstance(statement, syntax.Command) and tree.data[statement.end : redirect.start_byte].strip() == b"-":
        at = tree.data.index(b"-", statement.end)
        statement.words.append(ShellWord(at, at + 1, dollar.text(tree.data, at, at + 1, "word")))


def _targets(tree: Tree, redirect: Node) -> list[Node]:
    """The file that standard output goes to. `>&2` gives "2"."""
    is_output = any(child.type in _OUTPUTS for child in redirect.children)
    is_stderr = any(child.type == "file_descriptor" and tree.text(child) == "2" for child in redirect.children)
    return redirect.children_by_field_name("destination")[:1] if is_output and not is_stderr else []


def _here_document(tree: Tree, redirect: Node) -> ShellWord:
    parts = {child.type: child for child in redirect.children}
    body, mark = parts.get("heredoc_body"), parts.get("heredoc_start")
    if body is None:
        return ShellWord(redirect.end_byte, redirect.end_byte, ())
    start, end = body.start_byte, body.end_byte
    if mark is not None and any(char in tree.text(mark) for char in "'\"\\"):
        return ShellWord(start, end, dollar.text(tree.data, start, end, "raw"))
    return ShellWord(start, end, tree.pieces(body.children, start, end, "heredoc"))


def if_(tree: Tree, node: Node) -> Statement:
    arms = [_arm(tree, [child for child in node.children if child.type not in _CLAUSES])]
    for clause in node.children:
        if clause.type == "elif_clause":
            arms.append(_arm(tree, clause.children))
        elif clause.type == "else_clause":
            arms.append(([], tree.block(clause.children)))
    return syntax.If(node.start_byte, node.end_byte, arms)


def _arm(tree: Tree, nodes: Sequence[Node]) -> tuple[list[Statement], list[Statement]]:
    then = next((place for place, node in enumerate(nodes) if node.type == "then"), len(nodes))
    return tree.block(nodes[:then]), tree.block(nodes[then:])


def case(tree: Tree, node: Node) -> Statement:
    subject = node.child_by_field_name("value")
    if subject is None:
        return tree.not_understood(node)
    found = syntax.Case(node.start_byte, node.end_byte, tree.word(subject))
    for item in node.children:
        if item.type == "case_item":
            end = next((place for place, child in enumerate(item.children) if child.type == ")"), -1)
            patterns = [tree.word(pattern) for pattern in item.children_by_field_name("value")]
            found.arms.append((patterns, tree.block(item.children[end + 1 :])))
    return found


def for_loop(tree: Tree, node: Node) -> Statement:
    name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    if name is None or body is None:
        return tree.not_understood(node)
    tree.assigned.append((node.start_byte, tree.text(name)))
    has_words = any(child.type == "in" for child in node.children)
    words = [tree.word(child) for child in node.children_by_field_name("value")] if has_words else None
    return syntax.ForLoop(node.start_byte, node.end_byte, tree.text(name), words, tree.one(body))


def counted_loop(tree: Tree, node: Node) -> Statement:
    body = node.child_by_field_name("body")
    if body is None:
        return tree.not_understood(node)
    expressions = []
    for field in ("initializer", "condition", "update"):
        parts = node.children_by_field_name(field)
        tree.note_assigned(*parts)
        text = tree.data[parts[0].start_byte : parts[-1].end_byte] if parts else b""
        expressions.append(text.decode("utf-8", "replace"))
    return syntax.CountedLoop(node.start_byte, node.end_byte, expressions, tree.one(body))


def while_loop(tree: Tree, node: Node) -> Statement:
    body = next((child for child in node.children if child.type == "do_group"), None)
    if body is None:
        return tree.not_understood(node)
    conditions = tree.block(child for child in node.children if child.type != "do_group")
    is_until = node.children[0].type == "until"
    return syntax.WhileLoop(node.start_byte, node.end_byte, conditions, tree.one(body), is_until)


def function(tree: Tree, node: Node) -> Statement:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is None or body is None:
        return tree.not_understood(node)
    return syntax.Function(node.start_byte, node.end_byte, tree.text(name), tree.one(body))
