"""Commands with redirections: here-documents as input, or as files that the script starts later."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hcp.bash.expand import in_range, literal, value, value_of
from hcp.bash.value import Value, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

    from hcp.bash.walker import Machine


_FOLLOWING = {"pipeline", "command", "list", "variable_assignment", "compound_statement", "test_command"}
"""What stands behind `<<EOF` on its line: the grammar puts it into the redirection."""


def redirected(m: Machine, node: Node) -> bool | None:
    """A command with a here-document: as its input, or written to a file that the script may start later."""
    body = node.child_by_field_name("body")
    outer = m.stdin
    targets: list[str] = []
    after: list[Node] = []
    for redirect in node.children_by_field_name("redirect"):
        if redirect.type == "heredoc_redirect":
            m.stdin = _here_document(m, redirect)
            after += [child for child in redirect.named_children if child.type in _FOLLOWING]
            files = [child for child in redirect.named_children if child.type == "file_redirect"]
        elif redirect.type == "herestring_redirect":
            m.stdin = value(m, redirect.named_children[0]) if redirect.named_children else None
            files = []
        else:
            files = [redirect]
        targets += [text for file in files for text in [_target(m, file)] if text is not None]
    status = None
    name = (body.text or b"").split(None, 1)[0] if body is not None and body.text else b""
    if name in (b"cat", b"tee") and m.stdin is not None:
        for target in targets:
            m.files[target] = m.stdin
    elif m.printed is not None and targets:
        m.spoiled = m.spoiled or not all(target in ("2", "/dev/null") for target in targets)
    if body is not None and not (m.printed is not None and "2" in targets):
        status = m.run(body)
    for child in after:
        if child.type == "pipeline":
            m.subshell(partial(m.block, child.named_children))
        elif m.printed is None:
            m.either([partial(m.run, child), bool], "depends on the command before it", m.span(child))
    m.stdin = outer
    return status


def _target(m: Machine, redirect: Node) -> str | None:
    """The file that output goes to; None for input. `>&2` gives "2"."""
    if not any(child.type in (">", ">>", ">|", "&>", ">&") for child in redirect.children):
        return None
    if any(child.type == "file_descriptor" and child.text == b"2" for child in redirect.children):
        return None
    target = redirect.child_by_field_name("destination")
    return text_of(value(m, target)) if target is not None else None


def _here_document(m: Machine, redirect: Node) -> Value:
    body = next((child for child in redirect.named_children if child.type == "heredoc_body"), None)
    start = next((child for child in redirect.named_children if child.type == "heredoc_start"), None)
    if body is None:
        return ()
    quoted = start is not None and any(char in (start.text or b"") for char in b"'\"\\")
    if quoted:
        return tuple(literal(m, body.start_byte, body.end_byte, "raw"))
    frags = in_range(m, body.children, body.start_byte, body.end_byte, "heredoc")
    return value_of(frags, m.span(body))
