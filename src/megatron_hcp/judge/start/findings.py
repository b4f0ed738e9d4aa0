"""Guards that refuse a launch as findings: with its own keys and lines, and once for each truth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.judge.report import Finding
from megatron_hcp.judge.start.context import Context, context_of
from megatron_hcp.judge.start.judged import program_of
from megatron_hcp.judge.start.keys import Spot, spot_of, written_value
from megatron_hcp.launch.fact import Launch, shown_value
from megatron_hcp.rules.rule import Fix, Problem, Rule
from megatron_hcp.rules.start.citations import cites
from megatron_hcp.rules.start.functions import row_of
from megatron_hcp.validators.outcome import Guard, Judgement, Refusal
from megatron_hcp.validators.trees import names_in, tree_of

_MOST_VALUES = 6


class Refused(NamedTuple):
    """A guard that refuses the launch: in these releases, oldest first, with what it reads, and where it stands.

    `spots` are the settings of its condition, then what the launch writes of those that lead upstream to it.
    """

    refusal: Refusal
    releases: tuple[str, ...]
    context: Context
    spots: tuple[Spot, ...]

    @property
    def guard(self) -> Guard:
        return self.refusal.guard


def refused_by(launch: Launch, judged: Sequence[Judgement]) -> list[Refused]:
    """The refusals of some releases, oldest first, once for each guard; with the values of the newest that refuses."""
    found: dict[Guard, tuple[Judgement, Refusal, tuple[str, ...]]] = {}
    for outcome in judged:
        for refusal in outcome.refusals:
            *_, releases = found.get(refusal.guard, ((),))
            found[refusal.guard] = (outcome, refusal, (*releases, outcome.release))
    return [_refused(launch, *each) for each in found.values()]


def findings_of(
    launch: Launch, judged: Sequence[Judgement], rules: Iterable[Rule], fired: Iterable[Finding], *, fixes: bool = False
) -> list[Finding]:
    """A finding for each guard that refuses the launch, in the order of the start-up; one for all if only some
    releases refuse it.

    `rules` are the START rules that are to speak. A guard is silent where a finding of another rule cites it: that one
    has the reason and the fix. It is silent too if the launch states nothing that it reads (a few words after `--`, or
    a script that gets the rest elsewhere, lack much that upstream requires), or if the parser refuses a value first.
    """
    fired = list(fired)
    unparsed = {key for item in fired if item.rule.id.startswith("KEY") for key in item.keys}
    speaking = {rule.id: rule for rule in rules}
    items = [
        item
        for item in refused_by(launch, judged)
        if any(spot.is_written for spot in item.spots) and not any(spot.key in unparsed for spot in item.spots)
    ]
    every = {outcome.release for outcome in judged} == {release for item in items for release in item.releases}
    found = []
    for item in items:
        rule, slug = speaking.get(row_of(item.guard).id), item.guard.slug
        if rule is None or slug in rule.without or (rule.only is not None and slug not in rule.only):
            continue
        conditions = (*item.context.around, item.context.own)
        if not any(cites(one.rule.source, item.guard, conditions) for one in fired):
            found.append(_finding(launch, rule, item, [outcome.release for outcome in judged], fixes=fixes))
    return found if every else _as_one(found)


def _as_one(found: list[Finding]) -> list[Finding]:
    """What some releases refuse and others don't, as one warning; the user chooses among them by stating one."""
    if not found:
        return []
    more = f"; {len(found) - 1} more" if len(found) > 1 else ""
    problem = found[0].problem
    return [found[0]._replace(problem=problem._replace(message=problem.message + more), severity="warning")]


def _finding(launch: Launch, rule: Rule, item: Refused, releases: list[str], *, fixes: bool) -> Finding:
    guard, values, context = item.guard, item.refusal.values, item.context.around
    shown = [f"{spot.key}={shown_value(value)}" for spot, (_, value) in zip(item.spots, values)]
    shown += [f"{spot.key}={shown_value(written_value(launch, spot))}" for spot in item.spots[len(values) :]]
    more = f" and {len(shown) - _MOST_VALUES} more" if len(shown) > _MOST_VALUES else ""
    said = f'"{guard.message}"' if guard.message else guard.condition
    problem = Problem(
        message=f"{guard.function} refuses it{_by(item, releases)}: {said}",
        found=", ".join(shown[:_MOST_VALUES]) + more,
        wanted=guard.condition + (f" where {' and '.join(context)}" if context else ""),
        facts=tuple(dict.fromkeys(spot.fact or spot.key for spot in item.spots)),
        location=next((spot.location for spot in item.spots if spot.location is not None), None),
        fixes=_fixes(launch, item) if fixes else (),
        guard=guard.slug,
    )
    keys = tuple(dict.fromkeys(spot.key for spot in item.spots))
    return Finding(
        rule, problem, rule.severity, rule.effect, rule.stage, keys, problem.location, role=launch.reading.role
    )


def _refused(launch: Launch, judged: Judgement, refusal: Refusal, releases: tuple[str, ...]) -> Refused:
    program = program_of(launch, judged)
    context = context_of(program, refusal.guard) if program is not None else Context()
    spots = [spot_of(launch, refusal.key_of(name)) for name, _ in refusal.values]
    around = [spot for spot in _written_in(launch, refusal, context) if spot not in spots]
    return Refused(refusal, releases, context, (*spots, *around))


def _written_in(launch: Launch, refusal: Refusal, context: Context) -> list[Spot]:
    """What the launch writes of the settings that lead upstream to a guard, and of those that its names stand for."""
    texts = (*context.around, *context.behind)
    names = dict.fromkeys(name for text in texts for name, _ in names_in(tree_of(text)) if "." in name)
    return [spot for name in names if (spot := spot_of(launch, refusal.key_of(name))).is_written]


def _fixes(launch: Launch, item: Refused) -> tuple[Fix, ...]:
    from megatron_hcp.judge.start.fixes import fixes_for

    return fixes_for(launch, item.refusal, item.spots[len(item.refusal.values) :])


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
