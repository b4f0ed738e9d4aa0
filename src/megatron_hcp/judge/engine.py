"""Checks a launch: runs the rules over each of its models, tries their fixes, and honors accepted findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from megatron_hcp.judge.age import not_read
from megatron_hcp.judge.report import Finding, Presumed, Report, Undecided
from megatron_hcp.judge.run import Run, presumed_facts, run, start_of
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Acceptance, Launch
from megatron_hcp.launch.hidden import hides_any
from megatron_hcp.rules import registry
from megatron_hcp.rules.known.row import PACKAGES
from megatron_hcp.rules.rule import Rule
from megatron_hcp.rules.view import View


def check_launch(
    launch: Launch,
    rules: Iterable[Rule] | Callable[[Launch], Iterable[Rule]],
    *,
    fixes: bool = True,
    verdict: bool = True,
) -> Report:
    """The findings on a launch, ordered by rule id as given.

    `fixes=False` skips trying fixes. `verdict=False` skips trying values for what the launch hides or leaves to
    defaults, which takes most of the time: `undecided` and `presumed` are then empty.

    `rules` is a fixed list, or a function that returns those that concern a launch: a fix may make others apply.
    Further models of the same launch (verl's ref and critic) are checked too; a rule that already fired on the first is
    not repeated.
    """
    rules_for = rules if callable(rules) else _for_any_launch(tuple(rules))
    here = tuple(rules_for(launch))
    first = run(View(launch), (rule for rule in here if not rule.last))
    found = [(launch, finding) for finding in first.findings]
    asked = {name for ruling in first.rulings for name in ruling.asked} if verdict else ()
    started = start_of(launch, here, first.findings, fixes=fixes, verdict=verdict, asked=asked)
    found += [(launch, finding) for finding in started.findings]
    if verdict:
        first = _with_some_releases(launch, first)
        found += [(launch, finding) for finding in first.by_release]
    not_checked = list(first.not_checked)
    reported = [finding for _, finding in found]
    undecided = list(_undecided(launch, first)) if verdict else []
    if verdict:
        undecided += [item for item in started.undecided if item.reason not in {one.reason for one in undecided}]
    for other in launch.reading.others:
        second = build_launch(other, assumed=launch.assumed, model=launch.model)
        there = run(View(second), (rule for rule in rules_for(second) if not rule.last))
        if verdict:
            known = {item.reason for item in undecided}
            undecided += [item for item in _undecided(second, there) if item.reason not in known]
        fired = {finding.id for _, finding in found}
        found += [(second, finding) for finding in there.findings if finding.id not in fired]
        missing = {item.rule.id for item in not_checked}
        not_checked += [item for item in there.not_checked if item.rule.id not in missing and item.rule.id not in fired]
    others = [finding for owner, finding in found if owner is not launch]
    if others and started.findings:
        from megatron_hcp.judge.start.findings import said_by

        again = said_by(others, started)
        found = [pair for pair in found if pair[1].id not in again]
    acceptances = launch.reading.acceptances
    used = [_acceptance_of(owner, finding, acceptances) for owner, finding in found]
    accepted = [finding for (_, finding), acceptance in zip(found, used) if acceptance is not None]
    kept = [pair for pair, acceptance in zip(found, used) if acceptance is None]
    findings = [finding for _, finding in kept]
    if fixes and any(finding.problem.fixes for finding in findings):
        from megatron_hcp.judge.repair.offer import offer_all

        # A fix is tried on the model that it is for; errors that were there before don't count against it.
        errors = {item.id for item in (*reported, *others) if item.severity == "error"}
        if any(outcome.masked for outcome in started.judged_by):
            from megatron_hcp.judge.start.findings import masked_in

            errors |= masked_in(started.judged_by)
        findings = offer_all(kept, rules_for, errors, (launch, reported, first.not_checked))
    decided = {rule.id for rule in here if not rule.last} - {item.rule.id for item in not_checked}
    unused = tuple(item for item in acceptances if item not in used and item.rule.partition("/")[0] in decided)
    view = View(launch, unused, registry.BY_ID if acceptances else ())
    last = run(view, (rule for rule in here if rule.last))
    findings = sorted(findings + last.findings, key=lambda finding: finding.id)
    if verdict:
        undecided += not_read(launch, findings)
    if len(undecided) > 1:
        from megatron_hcp.judge.verdict.undecided import once_for_arguments

        undecided = once_for_arguments(undecided)
    return Report(
        launch,
        tuple(findings),
        tuple(not_checked + last.not_checked),
        first.applied + last.applied,
        tuple(accepted),
        tuple(undecided),
        _presumed(launch, first) if verdict else (),
        started.judged_by,
    )


def _with_some_releases(launch: Launch, done: Run) -> Run:
    """What was done, with what rules find in some releases, and without those that no possible release leaves open."""
    if not any(need in PACKAGES for item in done.not_checked for need in item.needs):
        return done
    from megatron_hcp.judge.by_release import in_some_releases

    some = in_some_releases(launch, done.rulings)
    left = [item for item in done.not_checked if item.rule.id not in some.ruled_out]
    applied = done.applied + len(done.not_checked) - len(left)
    return done._replace(not_checked=left, applied=applied, by_release=some.findings)


def _undecided(launch: Launch, done: Run) -> tuple[Undecided, ...]:
    # A rule may lack a fact that is known only as an expression.
    if not hides_any(launch) and not any(need in launch.facts for item in done.not_checked for need in item.needs):
        return ()
    from megatron_hcp.judge.verdict.undecided import undecided_by

    return undecided_by(launch, done.rulings)


def _presumed(launch: Launch, done: Run) -> tuple[Presumed, ...]:
    if not presumed_facts(launch):
        return ()
    from megatron_hcp.judge.verdict.presume import presumed_for

    return presumed_for(launch, done.rulings, registry.facts_that_select(launch))


def _for_any_launch(rules: tuple[Rule, ...]) -> Callable[[Launch], Iterable[Rule]]:
    return lambda launch: rules


def _acceptance_of(owner: Launch, finding: Finding, acceptances: Iterable[Acceptance]) -> Acceptance | None:
    """The comment that accepts a finding: beside a key of it or above it, and with a reason."""
    places = [owner.facts[name].location for name in finding.problem.facts if name in owner.facts]
    if finding.problem.guard:  # what upstream reads may be no fact
        places.append(finding.location)
    return next(
        (
            acceptance
            for acceptance in acceptances
            for place in places
            if acceptance.rule == finding.id
            and acceptance.reason
            and place is not None
            and place.file == acceptance.location.file
            and acceptance.location.line <= place.line <= acceptance.last_line
        ),
        None,
    )
