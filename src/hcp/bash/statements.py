"""Statements: what each kind does to the script that is walked through. The status is None where it is not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from hcp.bash.assign import assign, declaration, unset
from hcp.bash.builtins import BUILTINS, SILENT, WORKS, keeps_words
from hcp.bash.conditions import arithmetic_holds, holds
from hcp.bash.expand import group_words, grouped, value, words
from hcp.bash.loops import case, counted_for, for_each, while_holds
from hcp.bash.redirect import redirected
from hcp.bash.value import Item, Items, Span, Unseen, Value, Word
from hcp.launch.script.commands import take_apart
from hcp.launch.script.started import Handed, Launched

if TYPE_CHECKING:
    from tree_sitter import Node

    from hcp.bash.walker import Machine

MAX_LAUNCHES = 200


def _command(m: Machine, node: Node) -> bool | None:
    name_node = node.child_by_field_name("name")
    parts = [child for child in node.children if child.type not in ("file_redirect", "heredoc_redirect", "comment")]
    groups = grouped(m, parts)
    own = _own_assignments(m, groups)
    for first, *rest in groups[:own]:
        assign(m, first, rest=rest)
    if name_node is None or own == len(groups):
        return True
    plain = name_node.named_children[0] if name_node.named_child_count == 1 else name_node
    if plain.type == "arithmetic_expansion" and (plain.text or b"").startswith(b"(("):
        return arithmetic_holds(m, plain)  # how the grammar 0.23 reads `((A > 4))`
    plain_name = (plain.text or b"").decode("utf-8", "replace") if plain.type == "word" else ""
    if plain_name in SILENT and m.printed is None:
        return True if plain_name in WORKS else None
    items: list[Item] = []
    prefix: dict[str, tuple[Value | None, Span]] = {}
    stdin = m.stdin
    for group in groups[own:]:
        child = group[0]
        kind = child.type
        if kind == "variable_assignment":
            name, found = _prefix(m, child)
            prefix[name] = (found, m.span(child))
        elif kind == "command_name" and len(group) == 1:
            items += words(m, child.named_children[0] if child.named_child_count == 1 else child)
        elif kind == "herestring_redirect":
            inner = child.named_children
            m.stdin = value(m, inner[0]) if inner else None
        elif kind == "ERROR" or child.is_missing:
            items.append(Unseen(f"line {m.line(child)} is not understood", m.span(child)))
        elif child.is_named or kind == "$":
            items += group_words(m, group)
    try:
        return _dispatch(m, node, tuple(items), prefix)
    finally:
        m.stdin = stdin


def _own_assignments(m: Machine, groups: Sequence[Sequence[Node]]) -> int:
    """How many of the assignments in front stand for themselves: the grammar counts `A=1 B=2` on a line of its own
    to the command on the next line, and a value that goes on after a backslash to a command too.
    """
    own = 0
    for place, group in enumerate(groups):
        if group[0].type != "variable_assignment":
            break
        if place + 1 == len(groups):
            return place + 1
        gap = m.source.data[group[-1].end_byte : groups[place + 1][0].start_byte]
        if b"\n" in gap.replace(b"\\\n", b""):
            own = place + 1
    return own


def _prefix(m: Machine, node: Node) -> tuple[str, Value]:
    name, content = node.child_by_field_name("name"), node.child_by_field_name("value")
    return (name.text or b"").decode("utf-8", "replace") if name else "", value(m, content) if content else ()


def _dispatch(m: Machine, node: Node, items: Items, prefix: dict[str, tuple[Value | None, Span]]) -> bool | None:
    m.steps += len(items) // 20
    first = items[0] if items else None
    name = first.text if isinstance(first, Word) else None
    if name is not None:
        builtin = BUILTINS.get(name)
        if builtin is not None:
            return builtin(m, items[1:], prefix, m.span(node))
        if name in m.functions:
            return m.call(name, items[1:])
    if m.printed is not None:
        m.spoiled = True
        return None
    context = m.context
    if prefix:
        context = context.with_environment(prefix)
    found = take_apart(items, context, m.span(node))
    if isinstance(found, Handed):
        return m.handed(found, m.span(node))
    if found is not None and len(m.launches) < MAX_LAUNCHES:
        m.launches.append(Launched(found, m.environment(), m.doubts[-1] if m.doubts else None))
    return None


def _assignment(m: Machine, node: Node) -> bool | None:
    for child in node.named_children if node.type == "variable_assignments" else [node]:
        assign(m, child)
    return True


def _block(m: Machine, node: Node) -> bool | None:
    if node.children and node.children[0].type == "((":
        return arithmetic_holds(m, node)
    return m.block(node.children)


def _subshell(m: Machine, node: Node) -> bool | None:
    return m.subshell(lambda: m.block(node.children))


def _negated(m: Machine, node: Node) -> bool | None:
    text = m.source.data[node.start_byte + 1 : node.end_byte].strip()
    # The grammar takes `! ((…))` for two subshells.
    is_arithmetic = text.startswith(b"((") and text.endswith(b"))")
    status = arithmetic_holds(m, node) if is_arithmetic else m.block(node.named_children)
    return None if status is None else not status


def _if(m: Machine, node: Node) -> bool | None:
    """Decided arms are walked alone; from the first undecided one on, every arm that is left may be taken."""
    open_arms: list[Callable[[], object]] = []
    for conditions, body in _arms(node):
        status = m.block(conditions) if conditions else True
        if status is False:
            continue
        if status is None:
            open_arms.append(partial(m.block, body))
            continue
        if not open_arms:
            return m.taken(body) if body else True
        open_arms.append(partial(m.taken, body) if body else bool)
        break
    else:
        if not open_arms:
            return True
        open_arms.append(bool)  # none of the arms
    m.either(open_arms, f"depends on the `if` in line {m.line(node)}", m.span(node))
    return None


def _arms(node: Node) -> list[tuple[list[Node], list[Node]]]:
    """(conditions, body) of `if`, each `elif` and `else`; `else` has no conditions."""
    arms: list[tuple[list[Node], list[Node]]] = []
    conditions: list[Node] = []
    body: list[Node] = []
    in_body = False
    for child in node.children:
        if child.type == "then":
            in_body = True
        elif child.type in ("elif_clause", "else_clause"):
            arms.append((conditions, body))
            return arms + [
                arm
                for clause in node.children
                if clause.type in ("elif_clause", "else_clause")
                for arm in _clause(clause)
            ]
        elif child.is_named and child.type != "comment":
            (body if in_body else conditions).append(child)
    return [*arms, (conditions, body)]


def _clause(node: Node) -> list[tuple[list[Node], list[Node]]]:
    if node.type == "else_clause":
        return [([], [child for child in node.named_children if child.type != "comment"])]
    then = next((place for place, child in enumerate(node.children) if child.type == "then"), len(node.children))
    named = [
        [child for child in part if child.is_named and child.type != "comment"]
        for part in (node.children[:then], node.children[then:])
    ]
    return [(named[0], named[1])]


def _list(m: Machine, node: Node) -> bool | None:
    """`a && b || c`: after an undecided `a`, `b` and `c` exclude each other."""
    chain: list[tuple[str, Node]] = []
    first = node
    while first.type == "list" and len(first.children) >= 3:
        chain.append((first.children[1].type, first.children[-1]))
        first = first.children[0]
    chain.reverse()
    status = m.run(first)
    reason = f"depends on the condition in line {m.line(node)}"
    place = 0
    while place < len(chain) and m.stop is None:
        sign, right = chain[place]
        place += 1
        if status is not None:
            if status == (sign == "&&"):
                status = m.taken([right])
            continue
        other: Callable[[], object] = bool
        if sign == "&&" and place < len(chain) and chain[place][0] == "||":
            other = partial(m.run, chain[place][1])
            place += 1
        m.either([partial(m.run, right), other], reason, m.span(node))
    return status


def _function(m: Machine, node: Node) -> bool | None:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is not None and body is not None:
        m.functions[(name.text or b"").decode("utf-8", "replace")] = (body, m.source)
    return True


def _pipeline(m: Machine, node: Node) -> bool | None:
    stages = [child for child in node.named_children if child.type != "comment"]
    for place, stage in enumerate(stages):
        if m.printed is not None and place:
            if not keeps_words(m.source.data[stage.start_byte : stage.end_byte]):
                m.spoiled = True
            continue
        m.subshell(partial(m.run, stage))
    return None


def _not_understood(m: Machine, node: Node) -> bool | None:
    m.block(node.named_children)
    return None


STATEMENTS: dict[str, Callable[[Machine, Node], bool | None]] = {
    "command": _command,
    "variable_assignment": _assignment,
    "variable_assignments": _assignment,
    "declaration_command": declaration,
    "unset_command": unset,
    "compound_statement": _block,
    "do_group": _block,
    "subshell": _subshell,
    "negated_command": _negated,
    "test_command": holds,
    "if_statement": _if,
    "list": _list,
    "for_statement": for_each,
    "c_style_for_statement": counted_for,
    "while_statement": while_holds,
    "case_statement": case,
    "function_definition": _function,
    "pipeline": _pipeline,
    "redirected_statement": redirected,
    "ERROR": _not_understood,
}
"""By the node types of tree-sitter-bash."""
