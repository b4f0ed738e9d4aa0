"""Runs the rules over a launch, tries their fixes, and honours accepted findings."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hcp.core.place import Location
from hcp.launch.build import build_launch
from hcp.launch.fact import Acceptance, Fact, Launch
from hcp.launch.facts.table import FACTS, keys_of
from hcp.rules.fixes import offer
from hcp.rules.registry import BY_ID
from hcp.rules.report import Finding, NotChecked, Report
from hcp.rules.rule import Problem, Rule
from hcp.rules.view import Unknown, View


def check_launch(launch: Launch, rules: Iterable[Rule], *, fixes: bool = True) -> Report:
    """The findings of `rules` on a launch, ordered by rule id as given; `fixes=False` skips trying fixes.

    Further models of the same launch (verl's ref and critic) are checked too; a rule that already fired on the
    first is not repeated.
    """
    rules = tuple(rules)
    last = tuple(rule for rule in rules if rule.last)
    rules = tuple(rule for rule in rules if not rule.last)
    first, not_checked, applied = _run(View(launch), rules)
    found = [(launch, finding) for finding in first]
    for other in launch.reading.others:
        second = build_launch(other, assumed=launch.assumed, model=launch.model)
        more, unknown, _ = _run(View(second), rules)
        fired = {finding.rule.id for _, finding in found}
        found += [(second, finding) for finding in more if finding.rule.id not in fired]
        missing = {item.rule.id for item in not_checked}
        not_checked += [item for item in unknown if item.rule.id not in missing and item.rule.id not in fired]
    acceptances = launch.reading.acceptances
    used = [_acceptance_of(owner, finding, acceptances) for owner, finding in found]
    accepted = [finding for (_, finding), acceptance in zip(found, used) if acceptance is not None]
    kept = [pair for pair, acceptance in zip(found, used) if acceptance is None]
    findings = [finding for _, finding in kept]
    if fixes:
        # A fix is tried on the model that it is for; it is not to blame for errors that were there before.
        errors = {finding.rule.id for _, finding in found if finding.severity == "error"}
        findings = [offer(owner, finding, rules, errors, rerun) for owner, finding in kept]
    decided = {rule.id for rule in rules} - {item.rule.id for item in not_checked}
    unused = tuple(item for item in acceptances if item not in used and item.rule in decided)
    more, unknown, judged = _run(View(launch, unused, BY_ID), last)
    findings = sorted(findings + more, key=lambda finding: finding.rule.id)
    return Report(launch, tuple(findings), tuple(not_checked + unknown), applied + judged, tuple(accepted))


def rerun(launch: Launch, rules: Iterable[Rule]) -> dict[str, Finding]:
    """The findings by rule id, without fixes: what a tried fix is judged by."""
    return {finding.rule.id: finding for finding in _run(View(launch), tuple(rules))[0]}


def _run(view: View, rules: Collection[Rule]) -> tuple[list[Finding], list[NotChecked], int]:
    findings: list[Finding] = []
    not_checked: list[NotChecked] = []
    applied = 0
    for rule in rules:
        try:
            if not rule.applies(view):
                continue
            problem = rule.check(view)
        except Unknown as missing:
            not_checked.append(NotChecked(rule, (missing.name,)))
            continue
        applied += 1
        if problem is not None:
            findings.append(_finding(view.launch, rule, problem))
    return findings, not_checked, applied


def _finding(launch: Launch, rule: Rule, problem: Problem) -> Finding:
    keys = []
    for name in problem.facts:
        fact = launch.facts.get(name)
        if fact is not None and fact.key is not None:
            keys.append(fact.key)
        elif name in FACTS:
            keys.extend(keys_of(FACTS[name], launch.dialect, launch.reading.role)[:1])
        else:
            keys.append(name)
    return Finding(
        rule,
        problem,
        problem.severity or rule.severity,
        problem.effect or rule.effect,
        problem.stage or rule.stage,
        tuple(dict.fromkeys(keys)),
        problem.location or _place(launch, problem.facts),
        role=launch.reading.role,
    )


def _place(launch: Launch, names: Iterable[str]) -> Location | None:
    facts: list[Fact] = [launch.facts[name] for name in names if name in launch.facts]
    return next((fact.location for fact in facts if fact.location is not None), None)


def _acceptance_of(owner: Launch, finding: Finding, acceptances: Iterable[Acceptance]) -> Acceptance | None:
    """The comment that accepts a finding: beside a key of it or on the line above, and with a reason."""
    places = [owner.facts[name].location for name in finding.problem.facts if name in owner.facts]
    return next(
        (
            acceptance
            for acceptance in acceptances
            for place in places
            if acceptance.rule == finding.rule.id
            and acceptance.reason
            and place is not None
            and place.file == acceptance.location.file
            and place.line - acceptance.location.line in (0, 1)
        ),
        None,
    )
