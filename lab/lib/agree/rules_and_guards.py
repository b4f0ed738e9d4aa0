"""A rule and the guards whose places it cites, on the same launch: where one refuses, and the other does not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from megatron_hcp.judge.report import Report
from megatron_hcp.judge.start.context import context_of
from megatron_hcp.rules.registry import BY_ID, RULES
from megatron_hcp.rules.rule import Rule
from megatron_hcp.rules.start.citations import cites
from megatron_hcp.rules.view import Unknown, View
from megatron_hcp.validators.outcome import Guard
from megatron_hcp.validators.table import guards_of, program_of_release

_GUARDS = "START"
_AT_START = ("config", "init")


def disagreements(report: Report) -> Iterator[str]:
    """What a person has to look at: each is a defect of a rule or of a guard, or a case in which a rule says more.

    A rule that doesn't concern the launch disagrees with nothing, and neither does a guard that is open, or any behind
    another one that refuses: what upstream would do there isn't known.
    """
    v = View(report.launch)
    said = {finding.rule.id for finding in report.findings}
    errors = {
        finding.rule.id
        for finding in report.findings
        if finding.severity == "error" and finding.effect == "crash" and finding.stage in _AT_START
    }
    for judged in report.judged_by:
        cited = _cited(judged.repo, judged.release)
        refusing = {refusal.guard for refusal in judged.refusals}
        for guard in refusing:
            rules = {rule_id for rule_id in cited.get(guard, ()) if _concerns(BY_ID[rule_id], v)}
            if rules and not rules & said:
                yield f"{guard.slug} refuses, and not {' or '.join(sorted(rules))}, which cites it"
        undecided = {item.guard for item in judged.open}
        for rule_id in sorted(errors) if not refusing else ():
            guards = {guard for guard, rules in cited.items() if rule_id in rules}
            if guards and guards.isdisjoint(undecided):
                yield f"{rule_id} refuses, and none of the {len(guards)} guards that it cites"


def _concerns(rule: Rule, v: View) -> bool:
    try:
        return rule.applies(v)
    except Unknown:
        return False


@cache
def _cited(repo: str, release: str) -> dict[Guard, frozenset[str]]:
    """The hand-written rules that cite each guard of a release."""
    program = program_of_release(repo, release)
    rules = [rule for rule in RULES if rule.severity == "error" and not rule.id.startswith(_GUARDS)]
    found = {}
    for guard, releases in guards_of(repo).items():
        if program is not None and release in releases:
            conditions = context_of(program, guard).conditions
            ids = frozenset(rule.id for rule in rules if cites(rule.source, guard, conditions))
            if ids:
                found[guard] = ids
    return found
