"""Loops and `case`: followed iteration by iteration if the iterations are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from megatron_hcp.bash.arith import Undecidable
from megatron_hcp.bash.conditions import pattern_of, tried
from megatron_hcp.bash.expand import value, words
from megatron_hcp.bash.reason import ByVariable, WhyUnknown
from megatron_hcp.bash.syntax import Case, CountedLoop, ForLoop, If, ShellWord, Statement, SyntaxNode, WhileLoop
from megatron_hcp.bash.value import Field, Hole, Item, Unseen, text_of
from megatron_hcp.bash.walker import MAX_STEPS, Status, Walker

_VARIABLE = re.compile(r"\$\{?(\w+)")
MAX_ROUNDS = 128
_OPEN_ROUNDS = 4
"""The same for a loop that may have ended before, as one that waits for a job does."""


def for_each(w: Walker, node: ForLoop) -> Status:
    """`for name in words`."""
    if node.words is None:
        items: list[Item] = list(w.items_of("@", w.span(node)))
    else:
        items = [item for word in node.words for item in words(w, word)]
    is_open = any(re.search("[*?]", re.sub(r"\"[^\"]*\"|'[^']*'", "", w.text(word))) for word in node.words or ())
    if is_open or len(items) > MAX_ROUNDS or not all(isinstance(item, Field) for item in items):
        w.forget(node.name, f"takes several values in the loop in line {w.line(node)}", w.span(node))
        return _unknown_rounds(w, node)
    outer = w.enter("break", "continue")
    for item in items:
        assert isinstance(item, Field)
        w.assign(node.name, item.parts, item.span)
        if _round(w, node.body):
            break
    w.arrive("break")
    w.left = outer
    return None


def _round(w: Walker, body: Statement) -> bool:
    """Walks a loop's body once; returns whether the loop ends with it."""
    w.block([body])
    stop = w.stop
    if stop in ("break", "continue"):
        w.stop = None
    w.arrive("continue")
    return stop is not None and stop != "continue"


def counted_for(w: Walker, node: CountedLoop) -> Status:
    """`for ((…; …; …))`."""
    outer = w.enter("break", "continue")
    ended = False
    try:
        w.arithmetic(node.initial)
        for _ in range(MAX_ROUNDS):
            ended = bool(node.condition) and not w.arithmetic(node.condition)
            if ended or (ended := _round(w, node.body)):
                break
            w.arithmetic(node.update)
    except Undecidable:
        pass
    w.arrive("break")
    w.left = outer
    return None if ended else _unknown_rounds(w, node)


def while_holds(w: Walker, node: WhileLoop) -> Status:
    """`while`, `until`."""
    outer = w.enter("break", "continue")
    ended, start = False, w.steps + w.work
    for number in range(MAX_ROUNDS):
        status = w.block(node.conditions)
        ended = status is not None and (status == node.is_until or _round(w, node.body))
        is_open = number >= _OPEN_ROUNDS and bool(w.left["break"] or w.left["return"])
        is_open = is_open or w.steps + w.work - start > MAX_STEPS / 4  # most likely, it waits for something
        if ended or status is None or is_open:
            break
    w.arrive("break")
    w.left = outer
    return None if ended else _unknown_rounds(w, node)


def _unknown_rounds(w: Walker, node: ForLoop | CountedLoop | WhileLoop) -> Status:
    """A loop whose iterations are unknown: everything it assigns is unknown inside and after it."""
    reason = f"changes in the loop in line {w.line(node)}"
    w.forget_assigned(node, reason)
    outer = w.enter("break", "continue")
    w.either([partial(w.block, [node.body]), bool], reason, w.span(node))
    w.arrive("continue")
    w.arrive("break")
    w.left = outer
    if w.stop in ("break", "continue"):
        w.stop = None
    w.forget_assigned(node, reason)
    return None


def case(w: Walker, node: Case) -> Status:
    """`case`: as with `if`, only the decided arm is followed."""
    subject = text_of(value(w, node.subject))
    open_arms: list[Callable[[], object]] = []
    for patterns, body in node.arms:
        answer = _matches(w, subject, patterns)
        if answer is True and not open_arms:
            return arm(w, node, body, w.taken) if body else True
        if answer is not False:
            open_arms.append(partial(arm, w, node, body, w.block))
        if answer is True:
            break
    else:
        if not open_arms:
            return True
        open_arms.append(bool)
    reason = decided_by(w, f"depends on the `case` in line {w.line(node)}", [node.subject])
    if isinstance(reason, ByVariable):
        shown = [w.text(pattern).strip("'\"") for patterns, _ in node.arms for pattern in patterns]
        reason.choices = tuple(text for text in shown if not any(char in text for char in "*?[$`"))
    w.either(open_arms, reason, w.span(node))
    return None


def decided_by(w: Walker, reason: str, conditions: Sequence[SyntaxNode]) -> WhyUnknown:
    """The reason for a choice, with the one variable that its conditions ask for, if there is only one."""
    names = {name for node in conditions for name in _VARIABLE.findall(w.text(node))}
    if len(names) != 1:
        return WhyUnknown(reason).of_branch()
    name = names.pop()
    parts = (w.vars[name].value if name in w.vars else None) or ()
    holes = [part.reason for part in parts if isinstance(part, Hole)]
    argument = next((reason.argument for reason in holes if isinstance(reason, ByVariable)), "")
    return ByVariable.of(f"{reason}, by ${argument}" if argument else reason, name, argument).of_branch()


def arm(
    w: Walker, node: If | Case, body: Sequence[Statement], follow: Callable[[Sequence[Statement]], Status]
) -> Status:
    """Follows an arm. A file that it sources unread may set what the other arms set themselves."""
    before = w.sourced
    status = follow(body)
    if w.sourced != before:
        own = {name for statement in body for name in w.script.assigned_in(statement)}
        span = w.span(node)
        for name in w.script.assigned_in(node):
            if name not in own:
                w.assign_array(name, (Unseen(f"{name} may be set by {w.sourced}", span),), span)
    return status


def _matches(w: Walker, subject: str | None, patterns: Sequence[ShellWord]) -> bool | None:
    answers: list[bool | None] = []
    for word in patterns:
        if w.text(word) == "*":
            return True
        pattern = pattern_of(w, word)
        if subject is None or pattern is None:
            answers.append(None)
        elif isinstance(pattern, str):
            answers.append(pattern == subject)
        else:
            answers.append(tried(w, pattern, subject))
    return True if True in answers else None if None in answers else False
