"""What one rule makes of the facts of a launch."""

from __future__ import annotations

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.judge.age import as_a_note, may_be_unread
from megatron_hcp.rules.rule import Problem, Rule
from megatron_hcp.rules.view import Unknown, View


class Ruling(NamedTuple):
    """What one rule makes of some facts.

    `applies` is true too if the rule ended because it lacks a fact, `lacks`. `asked` names the facts that it read.
    """

    rule: Rule
    applies: bool
    problem: Problem | None
    lacks: str | None
    asked: dict[str, None]

    @property
    def is_error(self) -> bool:
        return self.problem is not None and (self.problem.severity or self.rule.severity) == "error"


def judge(view: View, rule: Rule) -> Ruling:
    """What the rule makes of the facts in view."""
    view.asked = {}
    try:
        applies = rule.applies(view)
        problem = rule.check(view) if applies else None
        if problem is not None and may_be_unread(view.launch, rule):
            problem = as_a_note(view, rule, problem)
        return Ruling(rule, applies, problem, None, view.asked)
    except Unknown as unknown:
        return Ruling(rule, True, None, unknown.name, view.asked)
