"""The effect of each kind of statement on the followed script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from megatron_hcp.bash.assign import assign, assigned_value, declaration, fields
from megatron_hcp.bash.builtins import BUILTINS, SETS_UP, SILENT, WORKS, keeps_words, note_setup
from megatron_hcp.bash.conditions import arithmetic_holds, holds
from megatron_hcp.bash.expand import value
from megatron_hcp.bash.loops import arm, case, counted_for, decided_by, for_each, while_holds
from megatron_hcp.bash.paths import substituted_by_sed
from megatron_hcp.bash.reason import RunTime, WhyUnknown
from megatron_hcp.bash.redirect import CHANGING, note_changes, redirected, written
from megatron_hcp.bash.syntax import (
    AndOr,
    ArithmeticCommand,
    Assignment,
    BraceGroup,
    Case,
    Command,
    Condition,
    CountedLoop,
    Declaration,
    ForLoop,
    Function,
    If,
    Negation,
    NotUnderstood,
    Pipeline,
    Redirected,
    Statement,
    Subshell,
    WhileLoop,
)
from megatron_hcp.bash.value import Field, Items, Span
from megatron_hcp.bash.walker import Prefix, Status, Walker


def _command(w: Walker, node: Command) -> Status:
    if node.name in CHANGING and w.printed is None:
        note_changes(w, node)
    if node.name in SETS_UP:
        note_setup(w, w.span(node))
    if node.name in SILENT and w.printed is None:
        return True if node.name in WORKS else None
    prefix = {one.name: (assigned_value(w, one), w.span(one)) for one in node.assignments}
    outer = w.stdin
    if node.stdin is not None:
        w.stdin = value(w, node.stdin)
    items = fields(w, node.words)
    w.pay(len(items), 20)
    status = _started(w, items, prefix, w.span(node))
    w.stdin = outer
    return status


def _started(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    """The effect of a command; builtins and the script's functions are followed."""
    name = items[0].text if items and isinstance(items[0], Field) else None
    if name is not None and name in BUILTINS:
        return BUILTINS[name](w, items[1:], prefix, span)
    if name is not None and name in w.functions:
        return w.call(name, items[1:])
    if w.printed is not None:
        if (printed := w.prints(w, items, prefix)) is not None:
            w.printed += printed
            return True
        w.spoiled = True
        if name not in w.submitting:
            return None
        outer, w.printed = w.printed, None  # what they start prints elsewhere
        status = w.on_command(w, items, prefix, span)
        w.printed = outer
        return status
    return w.on_command(w, items, prefix, span)


def _group(w: Walker, node: BraceGroup) -> Status:
    return w.block(node.statements)


def _subshell(w: Walker, node: Subshell) -> Status:
    return w.subshell(partial(w.block, node.statements))


def _negation(w: Walker, node: Negation) -> Status:
    status = w.block(node.statements)
    return None if status is None else not status


def _if(w: Walker, node: If) -> Status:
    """Only a decided arm is followed; from the first undecided condition on, any remaining arm may be taken."""
    open_arms: list[Callable[[], object]] = []
    asked: Sequence[Statement] = ()
    for conditions, body in node.arms:
        status = w.block(conditions) if conditions else True
        if status is False:
            continue
        if status is None:
            asked = asked or conditions
            open_arms.append(partial(arm, w, node, body, w.block))
            continue
        if not open_arms:
            return arm(w, node, body, w.taken) if body else True
        open_arms.append(partial(arm, w, node, body, w.taken) if body else bool)
        break
    else:
        if not open_arms:
            return True
        open_arms.append(bool)  # none of the arms
    reason = decided_by(w, f"depends on the `if` in line {w.line(node)}", [one for arm, _ in node.arms for one in arm])
    if len(open_arms) == 2:
        reason.test = _pure(w, asked)
    w.either(open_arms, reason, w.span(node))
    return None


def _pure(w: Walker, conditions: Sequence[Statement]) -> RunTime | None:
    from megatron_hcp.bash.run_time import pure  # few scripts need it

    return pure(w, conditions)


def _and_or(w: Walker, node: AndOr) -> Status:
    """`a && b || c`: after an undecided `a`, `b` and `c` exclude each other."""
    status = w.run(node.first)
    reason = WhyUnknown(f"depends on the condition in line {w.line(node)}").of_branch()
    if status is None:
        reason.test, reason.is_negated = _pure(w, [node.first]), node.rest[0][0] == "||"
    place = 0
    while place < len(node.rest) and w.stop is None:
        sign, right = node.rest[place]
        place += 1
        if status is not None:
            if status == (sign == "&&"):
                status = w.taken([right])
            continue
        other: Callable[[], object] = bool
        if sign == "&&" and place < len(node.rest) and node.rest[place][0] == "||":
            other = partial(w.run, node.rest[place][1])
            place += 1
        w.either([partial(w.run, right), other], reason, w.span(node))
        reason = reason.without_test()  # it is that of the first choice
    return status


def _function(w: Walker, node: Function) -> Status:
    w.functions[node.name] = (node, w.script)
    return True


def _pipeline(w: Walker, node: Pipeline) -> Status:
    outer = w.stdin
    for place, stage in enumerate(node.statements):
        if w.printed is None or not place:
            if place and isinstance(stage, Command):
                w.stdin = written(w, node.statements[place - 1])
            w.subshell(partial(w.run, stage))
        elif not keeps_words(w.text(stage)):
            changed = substituted_by_sed(w, w.text(stage), tuple(w.printed))
            w.printed, w.spoiled = (w.printed, True) if changed is None else ([*changed], w.spoiled)
    w.stdin = outer
    return None


def _not_understood(w: Walker, node: NotUnderstood) -> Status:
    w.block(node.statements)
    w.spoiled = w.spoiled or not node.statements
    return None


STATEMENTS: dict[type[Statement], Callable[[Walker, Any], Status]] = {
    Command: _command,
    Assignment: assign,
    Declaration: declaration,
    Condition: holds,
    ArithmeticCommand: arithmetic_holds,
    BraceGroup: _group,
    Subshell: _subshell,
    Negation: _negation,
    Pipeline: _pipeline,
    AndOr: _and_or,
    Redirected: redirected,
    If: _if,
    Case: case,
    ForLoop: for_each,
    CountedLoop: counted_for,
    WhileLoop: while_holds,
    Function: _function,
    NotUnderstood: _not_understood,
}
"""The table that a `Walker` is given."""
