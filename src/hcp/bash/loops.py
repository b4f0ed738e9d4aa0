"""Loops and `case`: walked round by round where the rounds are known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hcp.bash.arith import Undecidable, is_cheap
from hcp.bash.conditions import pattern_of
from hcp.bash.expand import value, words
from hcp.bash.value import Item, Word, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

    from hcp.bash.walker import Machine

MAX_ROUNDS = 64


def for_each(m: Machine, node: Node) -> bool | None:
    name_node, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    if name_node is None or body is None:
        return None
    name = (name_node.text or b"").decode("utf-8", "replace")
    values = node.children_by_field_name("value")
    items: list[Item] = [item for child in values for item in words(m, child)]
    if not any(child.type == "in" for child in node.children):
        items = list(m.items_of("@", m.span(node)))
    if len(items) > MAX_ROUNDS or not all(isinstance(item, Word) for item in items):
        m.forget(name, f"takes several values in the loop in line {m.line(node)}", m.span(node))
        return _unknown_rounds(m, node, [body])
    outer = m.enter("break", "continue")
    for item in items:
        assert isinstance(item, Word)
        m.assign(name, item.parts, item.span)
        if _round(m, [body]):
            break
    m.arrive("break")
    m.left = outer
    return None


def _round(m: Machine, body: list[Node]) -> bool:
    """Walks a loop's body once; whether the loop ends with it."""
    m.block(body)
    stop = m.stop
    if stop in ("break", "continue"):
        m.stop = None
    m.arrive("continue")
    return stop is not None and stop != "continue"


def counted_for(m: Machine, node: Node) -> bool | None:
    body = node.child_by_field_name("body")
    parts = [node.children_by_field_name(field) for field in ("initializer", "condition", "update")]
    if body is None:
        return None
    texts = [
        m.source.data[part[0].start_byte : part[-1].end_byte].decode("utf-8", "replace") if part else ""
        for part in parts
    ]
    outer = m.enter("break", "continue")
    ended = False
    try:
        m.arithmetic(texts[0])
        for _ in range(MAX_ROUNDS):
            ended = bool(texts[1]) and not m.arithmetic(texts[1])
            if ended or (ended := _round(m, [body])):
                break
            m.arithmetic(texts[2])
    except Undecidable:
        pass
    m.arrive("break")
    m.left = outer
    return None if ended else _unknown_rounds(m, node, [body])


def while_holds(m: Machine, node: Node) -> bool | None:
    is_until = bool(node.children) and node.children[0].type == "until"
    body = [child for child in node.named_children if child.type == "do_group"]
    conditions = [child for child in node.named_children if child.type not in ("do_group", "comment")]
    outer = m.enter("break", "continue")
    ended = False
    for _ in range(MAX_ROUNDS):
        status = m.block(conditions)
        ended = status is not None and (status == is_until or _round(m, body))
        if ended or status is None:
            break
    m.arrive("break")
    m.left = outer
    return None if ended else _unknown_rounds(m, node, body)


def _unknown_rounds(m: Machine, node: Node, body: list[Node]) -> bool | None:
    """A loop whose rounds are not known: what it assigns is unknown in it and after it."""
    reason = f"changes in the loop in line {m.line(node)}"
    m.forget_assigned(node, reason)
    outer = m.enter("break", "continue")
    m.either([lambda: m.block(body), bool], reason, m.span(node))
    m.arrive("continue")
    m.arrive("break")
    m.left = outer
    if m.stop in ("break", "continue"):
        m.stop = None
    m.forget_assigned(node, reason)
    return None


def case(m: Machine, node: Node) -> bool | None:
    value_node = node.child_by_field_name("value")
    subject = text_of(value(m, value_node)) if value_node is not None else None
    open_arms: list[Callable[[], object]] = []
    for item in node.named_children:
        if item.type != "case_item":
            continue
        answer = _matches(m, subject, item.children_by_field_name("value"))
        body = _body_of(item)
        if answer is True and not open_arms:
            return m.taken(body) if body else True
        if answer is not False:
            open_arms.append(partial(m.block, body))
        if answer is True:
            break
    else:
        if not open_arms:
            return True
        open_arms.append(bool)
    m.either(open_arms, f"depends on the `case` in line {m.line(node)}", m.span(node))
    return None


def _body_of(item: Node) -> list[Node]:
    past = next((place for place, child in enumerate(item.children) if child.type == ")"), -1)
    return [child for child in item.children[past + 1 :] if child.is_named and child.type != "comment"]


def _matches(m: Machine, subject: str | None, patterns: list[Node]) -> bool | None:
    answers: list[bool | None] = []
    for node in patterns:
        if node.text == b"*":
            return True
        pattern = pattern_of(m, node)
        if subject is None or pattern is None:
            answers.append(None)
        elif isinstance(pattern, str):
            answers.append(pattern == subject)
        else:
            answers.append(pattern.fullmatch(subject) is not None if is_cheap(pattern.pattern, subject) else None)
    return True if True in answers else None if None in answers else False
