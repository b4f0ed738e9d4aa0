"""Runs rules over many similar launches: a rule that reads nothing new isn't run again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from megatron_hcp.judge.report import Finding
from megatron_hcp.judge.run import run
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.rule import Rule
from megatron_hcp.rules.view import View

_ABSENT = object()


class RuleOutcome(NamedTuple):
    """One rule's outcome: whether it blocks the launch, and the facts that it lacks."""

    is_error: bool
    needs: tuple[str, ...]


def unread_needs(findings: Iterable[Finding]) -> list[str]:
    """The packages whose release may have a fault or limit that older ones have: it wasn't read."""
    return [item.rule.limit_of or "mcore" for item in findings if item.problem.unread]


class RuleMemo:
    """Outcomes by the values that a rule read. A rule is pure, so the same values give the same outcome.

    Only for launches of one reading, without presumed facts: everything else that a rule may read is then the same for
    all.
    """

    def __init__(self) -> None:
        self._seen: dict[str, dict[tuple[str, ...], dict[Any, RuleOutcome]]] = {}

    def outcomes(self, launch: Launch, rules: Iterable[Rule]) -> Iterable[tuple[Rule, RuleOutcome]]:
        """Each rule's outcome for the launch."""
        for rule in rules:
            yield rule, self._outcome(launch, rule)

    def _outcome(self, launch: Launch, rule: Rule) -> RuleOutcome:
        facts = launch.facts
        known = self._seen.setdefault(rule.id, {})
        for names, by_values in known.items():
            found = by_values.get(tuple([_value(facts, name) for name in names]))
            if found is not None:
                return found
        done = run(View(launch), (rule,))
        outcome = RuleOutcome(
            any(finding.severity == "error" for finding in done.findings),
            (*(need for item in done.not_checked for need in item.needs), *unread_needs(done.findings)),
        )
        names = tuple(done.rulings[0].asked)
        known.setdefault(names, {})[tuple([_value(facts, name) for name in names])] = outcome
        return outcome


def _value(facts: Any, name: str) -> Any:
    fact = facts.get(name)
    if fact is None:
        return _ABSENT
    # A fact's origin is read as well: a default is worded differently, and its severity may be lowered.
    value = fact.value
    return (repr(value) if isinstance(value, list | dict) else value, fact.origin)
