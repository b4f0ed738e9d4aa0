"""Guards that refuse a launch as findings: with its own keys and lines, and once for each truth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from megatron_hcp.judge.report import Finding
from megatron_hcp.judge.start.context import Context, context_of
from megatron_hcp.judge.start.judged import program_of
from megatron_hcp.judge.start.keys import Spot, spot_of, written_value
from megatron_hcp.launch.fact import Launch, shown_value
from megatron_hcp.rules.rule import Fix, Problem, Rule
from megatron_hcp.rules.start.citations import cites
from megatron_hcp.rules.start.functions import row_of
from megatron_hcp.validators.outcome import Guard, Judged, Refusal
from megatron_hcp.validators.trees import names_in, tree_of

_MOST_VALUES = 6


class Refused(NamedTuple):
    """A guard that refuses the launch, the releases whose guard it is, oldest first, and whether all refuse it."""

    refusal: Refusal
    releases: tuple[str, ...]
    by_all: bool

    @property
    def id(self) -> str:
        return f"{row_of(self.refusal.guard).id}/{self.refusal.guard.slug}"


def refused_by(judged: Sequence[Judged]) -> list[Refused]:
    """The refusals of some releases, oldest first, once for each guard; with the values of the newest that refuses."""
    found: dict[str, Refused] = {}
    for outcome in judged:
        for refusal in outcome.refusals:
            one = Refused(refusal, (outcome.release,), False)
            before = found.get(one.id)
            releases = before.releases if before else ()
            found[one.id] = one._replace(releases=tuple(dict.fromkeys((*releases, outcome.release))))
    every = all(outcome.refusals for outcome in judged)
    return [item._replace(by_all=every) for item in found.values()]


def findings_of(
    launch: Launch, judged: Sequence[Judged], rules: Iterable[Rule], fired: Iterable[Finding], *, fixes: bool = False
) -> list[Finding]:
    """A finding for each guard that refuses the launch, in the order of the start-up; one for all if only some
    releases refuse it.

    `rules` are the START rules that are to speak. A guard is silent where a finding of another rule cites it: that one
    has the reason and the fix. It is silent too if the launch states nothing that it reads: a few words after `--`, or
    a script that gets the rest elsewhere, lack much that upstream requires.
    """
    speaking = {rule.id: rule for rule in rules}
    sources = [finding.rule.source for finding in fired]
    found = []
    for item in refused_by(judged):
        guard = item.refusal.guard
        rule = speaking.get(row_of(guard).id)
        if rule is None or guard.slug in rule.without or (rule.only is not None and guard.slug not in rule.only):
            continue
        context = _context(launch, judged, guard)
        conditions = (*context.around, context.own) if context.own else context.around
        if any(cites(source, guard, conditions) for source in sources):
            continue
        finding = _finding(launch, rule, item, judged, context.around, fixes=fixes)
        if finding is not None:
            found.append(finding)
    return found if all(item.severity == "error" for item in found) else _as_one(found)


def _as_one(found: list[Finding]) -> list[Finding]:
    """What some releases refuse and others don't, as one warning; the user chooses among them by stating one."""
    more = f"; {len(found) - 1} more" if len(found) > 1 else ""
    problem = found[0].problem
    return [found[0]._replace(problem=problem._replace(message=problem.message + more))]


def _finding(
    launch: Launch, rule: Rule, item: Refused, judged: Sequence[Judged], context: tuple[str, ...], *, fixes: bool
) -> Finding | None:
    guard, values = item.refusal.guard, item.refusal.values
    spots = [spot_of(launch, name) for name, _ in values]
    shown = [f"{spot.key}={shown_value(value)}" for spot, (_, value) in zip(spots, values)]
    around = [spot for spot in _written_in(launch, context) if spot not in spots]
    shown += [f"{spot.key}={shown_value(written_value(launch, spot))}" for spot in around]
    spots += around
    if not any(spot.is_written for spot in spots):
        return None
    more = f" and {len(shown) - _MOST_VALUES} more" if len(shown) > _MOST_VALUES else ""
    said = f'"{guard.message}"' if guard.message else guard.condition
    problem = Problem(
        message=f"{guard.function} refuses it{_by(item, [outcome.release for outcome in judged])}: {said}",
        found=", ".join(shown[:_MOST_VALUES]) + more or "no setting of the launch",
        wanted=guard.condition + (f" where {' and '.join(context)}" if context else ""),
        facts=tuple(dict.fromkeys(spot.fact or spot.key for spot in spots)),
        location=next((spot.location for spot in spots if spot.location is not None), None),
        fixes=_fixes(launch, item.refusal, context) if fixes else (),
        guard=guard.slug,
        severity=None if item.by_all else "warning",
    )
    return Finding(
        rule,
        problem,
        problem.severity or rule.severity,
        rule.effect,
        rule.stage,
        tuple(dict.fromkeys(spot.key for spot in spots)),
        problem.location,
        role=launch.reading.role,
    )


def _context(launch: Launch, judged: Sequence[Judged], guard: Guard) -> Context:
    """The conditions under which the newest release that refuses comes to the guard."""
    refusing = next(
        one for one in reversed(judged) if any(refusal.guard.slug == guard.slug for refusal in one.refusals)
    )
    program = program_of(launch, refusing)
    return context_of(program, guard) if program is not None else Context()


def _written_in(launch: Launch, conditions: Iterable[str]) -> list[Spot]:
    """What the launch writes of the settings that conditions read."""
    names = dict.fromkeys(name for text in conditions for name, _ in names_in(tree_of(text)) if "." in name)
    return [spot for spot in map(partial(spot_of, launch), names) if spot.is_written]


def _fixes(launch: Launch, refusal: Refusal, context: Iterable[str]) -> tuple[Fix, ...]:
    from megatron_hcp.judge.start.fixes import fixes_for

    return fixes_for(launch, refusal, _written_in(launch, context))


def _by(item: Refused, releases: list[str]) -> str:
    """Which releases: "in 0.19.0", or of several "in megatron-core 0.17 and newer"."""
    if len(releases) == 1:
        return f" ({releases[0]})"
    first, last = item.releases[0], item.releases[-1]
    if len(item.releases) == len(releases):
        return " (all releases)"
    if last == releases[-1]:
        return f" ({first} and newer)" if first != last else f" ({last})"
    span = first if first == last else f"{first} to {last}"
    return f" (up to {last})" if first == releases[0] else f" ({span})"
