"""Findings that depend on what an unknown recipe is presumed to leave at its default."""

from __future__ import annotations

from collections.abc import Iterable

from megatron_hcp.judge.report import Presumed
from megatron_hcp.judge.ruling import Ruling, judge
from megatron_hcp.judge.verdict.legal import legal_values
from megatron_hcp.launch.dialects.table import FACTS, keys_of
from megatron_hcp.launch.fact import Fact, Launch, shown_value
from megatron_hcp.launch.facts.presumed import presumptions
from megatron_hcp.rules.rule import Problem, Rule
from megatron_hcp.rules.view import View


def presumptions_of(launch: Launch) -> dict[str, Presumed]:
    """By fact name, the value presumed for a setting that this launch doesn't state."""
    table = presumptions()
    keys = {name: keys_of(FACTS[name], launch.dialect, launch.reading.role) for name in table}
    return {
        name: Presumed((*keys[name], name)[0], fact.value, table[name].recipes_set, table[name].recipes)
        for name, fact in launch.facts.items()
        if fact.origin == "presumed"
    }


def presumed_for(launch: Launch, rulings: Iterable[Ruling], selecting: Iterable[str]) -> tuple[Presumed, ...]:
    """What was presumed and requested: of what some recipes set, by any rule or to select the rules; else by those that
    apply.

    `selecting`: the facts that selected the rules.
    """
    presumed = presumptions_of(launch)
    used: set[str] = set()
    asked = set(selecting)
    for ruling in rulings:
        asked |= ruling.asked.keys()
        if ruling.applies:
            used |= ruling.asked.keys()
    return tuple(item for name, item in presumed.items() if name in (asked if item.recipes_set else used))


def rests_on(launch: Launch, rule: Rule, presumed: dict[str, Presumed]) -> tuple[Presumed, ...]:
    """The presumed values for which the rule would find nothing at another value."""
    return tuple(item for name, item in presumed.items() if _vanishes(launch, rule, name))


def softened(problem: Problem, rule: Rule, resting: tuple[Presumed, ...], decider: str) -> Problem:
    """The problem as a warning "if the recipe leaves KEY at VALUE", if recipes do set such a key.

    `decider` is what sets the key: the recipe, or in verl the model.
    """
    unsure = [item for item in resting if item.recipes_set]
    if not unsure:
        return problem
    leaves = " and ".join(f"{item.key} at {shown_value(item.value)}" for item in unsure)
    severity = problem.severity or rule.severity
    return problem._replace(
        message=f"if the {decider} leaves {leaves}: {problem.message}",
        severity="warning" if severity == "error" else severity,
    )


def _vanishes(launch: Launch, rule: Rule, name: str) -> bool:
    for value in legal_values(launch, name):
        if value == launch.facts[name].value:
            continue
        view = View(launch._replace(facts={**launch.facts, name: Fact(value, "launch")}))
        if judge(view, rule).problem is None:  # it may lack further facts, such as a version
            return True
    return False
