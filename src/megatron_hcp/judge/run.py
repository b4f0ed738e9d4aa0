"""Runs rules over one launch and places their findings in it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from megatron_hcp.ground.place import Location
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.judge.age import ages_of, dated
from megatron_hcp.judge.report import Finding, NotChecked, Presumed, StartVerdict
from megatron_hcp.judge.ruling import Ruling, judge
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.table import FACTS, keys_of
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.rule import START, Problem, Rule
from megatron_hcp.rules.view import View


class Run(NamedTuple):
    """What rules find in a launch, what they can't decide, how many apply, and each ruling.

    `by_release`: what they would find in some releases, where the launch states none.
    """

    findings: list[Finding]
    not_checked: list[NotChecked]
    applied: int
    rulings: list[Ruling]
    by_release: Sequence[Finding] = ()


def run(view: View, rules: Iterable[Rule]) -> Run:
    """Judges the launch by each of the rules."""
    presumed = presumed_facts(view.launch)
    done = Run([], [], 0, [judge(view, rule) for rule in rules])
    ages = ages_of(view.launch)
    applied = 0
    for ruling in done.rulings:
        if not ruling.applies:
            continue
        lacks = ruling.lacks
        if ruling.problem is not None and view.launch.unknown:
            from megatron_hcp.judge.verdict.undecided import doubted

            lacks = doubted(view.launch, ruling)
        if lacks is not None:
            done.not_checked.append(NotChecked(ruling.rule, (lacks,)))
            continue
        applied += 1
        if ruling.problem is not None:
            problem = dated(ruling.problem, ruling.rule, ages)
            done.findings.append(finding_of(view.launch, ruling.rule, problem, presumed))
    return done._replace(applied=applied)


def start_of(
    launch: Launch,
    rules: Iterable[Rule],
    found: Iterable[Finding],
    *,
    fixes: bool = False,
    verdict: bool = False,
    errors_only: bool = False,
    asked: Container[str] = (),
) -> StartVerdict:
    """What upstream's own start-up makes of the launch, as far as the rules stand for it; `found` is what they find.

    With `fixes`, its findings have fixes, which have not been tried. With `verdict`, it says what it leaves undecided;
    `asked` are the facts that the other rules read.
    With `errors_only`, there are only its errors.
    """
    own = [rule for rule in rules if rule.id.startswith(START)]
    if not own:
        return StartVerdict()
    from megatron_hcp.judge.start.start import errors_at_start, started

    if errors_only:
        return StartVerdict(tuple(errors_at_start(launch, own, found)))
    return started(launch, own, found, fixes=fixes, verdict=verdict, asked=asked)


def presumed_facts(launch: Launch) -> dict[str, Presumed]:
    """By fact name, the value presumed for a setting that the launch doesn't state."""
    if not any(fact.origin == "presumed" for fact in launch.facts.values()):
        return {}
    from megatron_hcp.judge.verdict.presume import presumptions_of

    return presumptions_of(launch)


def finding_of(launch: Launch, rule: Rule, problem: Problem, presumed: dict[str, Presumed]) -> Finding:
    """The problem in its place, with the launch's own keys, and hedged where it rests on presumed values."""
    resting: tuple[Presumed, ...] = ()
    if presumed:
        from megatron_hcp.judge.verdict.presume import rests_on, softened

        resting = rests_on(launch, rule, presumed)
        problem = softened(problem, rule, resting, "model" if FRAMEWORKS[launch.dialect].model_decides else "recipe")
    by_default = launch.facts.get("default_of.nodes")
    if by_default is not None and _COUNTED & {*problem.facts}:
        problem = problem._replace(message=f"unless {by_default.value} is set, {problem.message}")
    keys: list[str] = []
    for name in problem.facts:
        fact = launch.facts.get(name)
        own = keys_of(FACTS[name], launch.dialect, launch.reading.role)[:1] if name in FACTS else ()
        if fact is None or fact.key is None:
            keys.extend(own or (() if name in FACTS else (name,)))
        else:
            # A value that follows another setting can be set itself: expert TP, which is else that of TP.
            keys.extend((fact.key, *(own if fact.origin == "derived" and name not in _COUNTED else ())))
    return Finding(
        rule,
        problem,
        problem.severity or rule.severity,
        problem.effect or rule.effect,
        problem.stage or rule.stage,
        tuple(dict.fromkeys(keys)),
        problem.location or _place(launch, problem.facts),
        role=launch.reading.role,
        presumed=resting,
    )


_COUNTED = frozenset(("nodes", "gpus_per_node", "world_size", "dp"))
"""Facts that follow from how many nodes and GPUs there are."""


def _place(launch: Launch, names: Iterable[str]) -> Location | None:
    facts = [launch.facts[name] for name in names if name in launch.facts]
    return next((fact.location for fact in facts if fact.location is not None), None)
