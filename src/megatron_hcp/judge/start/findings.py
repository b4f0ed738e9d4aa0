"""Guards that refuse a launch as findings: with its own keys and lines, and once for each truth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.judge.report import Finding, StartVerdict
from megatron_hcp.judge.start.context import Context, known_contexts
from megatron_hcp.judge.start.judged import program_of
from megatron_hcp.judge.start.keys import Spot, spot_of, written_value
from megatron_hcp.judge.start.made_from import is_whole, leading_to, options_behind
from megatron_hcp.launch.dialects.frameworks import COMMAND_LINES
from megatron_hcp.launch.fact import Launch, shown_value
from megatron_hcp.rules.rule import Fix, Problem, Rule
from megatron_hcp.rules.start.functions import row_of
from megatron_hcp.validators.outcome import Guard, Judgement, Refusal
from megatron_hcp.validators.program import StartProgram
from megatron_hcp.validators.trees import names_in, path_of, tree_of

_LONGEST_VALUE = 60
_MOST_VALUES = 6
_MOST_SAID = 3
"""Guards that one warning names, each with the releases that have it."""


class Refused(NamedTuple):
    """A guard that refuses the launch: in these releases, oldest first, with what it reads, and where it stands.

    `spots` are the settings of its condition, then those that lead upstream to it: what the launch writes of them, or
    all if it writes nothing of either.
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


def to_say(launch: Launch, judged: Sequence[Judgement], fired: Iterable[Finding]) -> list[Refused]:
    """The refusals that concern what the launch states, or a whole one lacks; not what the parser refuses first, nor a
    name that a release lacks where a rule says so."""
    errors = [item for item in fired if item.severity == "error"]
    unparsed = {key for item in errors if item.rule.id.startswith("KEY") for key in item.keys}
    unnamed = unparsed.union(*(item.keys for item in errors if (item.effect, item.stage) == ("crash", "init")))
    whole = is_whole(launch)
    return [
        item
        for item in refused_by(launch, judged)
        if (whole or any(spot.is_written for spot in item.spots))
        and not any(spot.key in (unnamed if is_of_a_name(item.guard) else unparsed) for spot in item.spots)
    ]


def is_of_a_name(guard: Guard) -> bool:
    """Whether it refuses an argument that a class doesn't have."""
    return "unexpected keyword argument" in guard.message


def masked_in(judged: Iterable[Judgement]) -> frozenset[str]:
    """The ids of findings that stand behind others: a fix of these doesn't make them."""
    return frozenset(f"{row_of(guard).id}/{guard.slug}" for outcome in judged for guard in outcome.masked)


def said_by(others: Iterable[Finding], started: StartVerdict) -> frozenset[str]:
    """The ids of findings of the start-up that rules say, too, of another model of the launch: verl's critic."""
    guards = {refusal.guard.slug: refusal.guard for outcome in started.judged_by for refusal in outcome.refusals}
    sources = [one.rule.source for one in others]
    if not guards:
        return frozenset()
    from megatron_hcp.rules.start.citations import cites

    return frozenset(
        item.id for item in started.findings if any(cites(source, guards[item.problem.guard]) for source in sources)
    )


def findings_of(
    launch: Launch, judged: Sequence[Judgement], rules: Iterable[Rule], fired: Iterable[Finding], *, fixes: bool = False
) -> list[Finding]:
    """A finding for each guard that refuses the launch, in the order of the start-up; one for all if only some
    releases refuse it.

    `rules` are the START rules that are to speak. A guard is silent where a finding of another rule cites it: that one
    has the reason and the fix. It is silent too if the launch is not whole and states nothing that it reads (a few
    words after `--`, or a script that gets the rest elsewhere, lack much that upstream requires), or if the parser
    refuses a value first.
    """
    fired = list(fired)
    speaking = {rule.id: rule for rule in rules}
    items = to_say(launch, judged, fired)
    every = {outcome.release for outcome in judged} == {release for item in items for release in item.releases}
    found: list[Finding] = []
    if not items:
        return found
    from megatron_hcp.rules.start.citations import cites

    for item in items:
        rule, slug = speaking.get(row_of(item.guard).id), item.guard.slug
        if rule is None or slug in rule.without or (rule.only is not None and slug not in rule.only):
            continue
        if not any(cites(one.rule.source, item.guard, item.context.conditions) for one in fired):
            found.append(_finding(launch, rule, item, [outcome.release for outcome in judged], fixes=fixes))
    return found if every else _as_one(found)


def _as_one(found: list[Finding]) -> list[Finding]:
    """What some releases refuse and others don't, as one warning; the user chooses among them by stating one."""
    if not found:
        return []
    problem = found[0].problem
    more = "".join(f"; {one.problem.message}" for one in found[1:_MOST_SAID])
    more += f"; {len(found) - _MOST_SAID} more" if len(found) > _MOST_SAID else ""
    return [found[0]._replace(problem=problem._replace(message=problem.message + more), severity="warning")]


def _short(value: object) -> str:
    text = shown_value(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:40]} ... {text[-15:]}"


def _finding(launch: Launch, rule: Rule, item: Refused, releases: list[str], *, fixes: bool) -> Finding:
    guard, values = item.guard, item.refusal.values
    shown = [f"{spot.key}={_short(value)}" for spot, (_, value) in zip(item.spots, values)]
    shown += [f"{spot.key}={_short(written_value(launch, spot))}" for spot in item.spots[len(values) :]]
    more = f" and {len(shown) - _MOST_VALUES} more" if len(shown) > _MOST_VALUES else ""
    said = f'"{_message_of(item)}"' if guard.message else guard.condition
    problem = Problem(
        message=f"{guard.function} refuses it{_by(item, releases)}: {said}",
        found=", ".join(shown[:_MOST_VALUES]) + more,
        wanted=_wanted(item),
        facts=tuple(dict.fromkeys(spot.fact or spot.key for spot in item.spots)),
        location=next((spot.location for spot in item.spots if spot.location is not None), None),
        fixes=_fixes(launch, item) if fixes else (),
        guard=guard.slug,
    )
    keys = tuple(dict.fromkeys(spot.key for spot in item.spots))
    return Finding(
        rule, problem, rule.severity, rule.effect, rule.stage, keys, problem.location, role=launch.reading.role
    )


def _wanted(item: Refused) -> str:
    if is_of_a_name(item.guard) and item.spots:
        return f"no {item.spots[0].key}, or a release that has it"
    context = item.context.around
    return item.guard.condition + (f" where {' and '.join(context)}" if context else "")


def _message_of(item: Refused) -> str:
    """The guard's message, with the name of the argument that it is about where upstream puts that in."""
    message, names = item.guard.message, [name for name, _ in item.refusal.values]
    if "getattr(args, arg)" not in item.guard.condition or len(names) != 1:
        return message
    return message.replace("{}", names[0].rpartition(".")[2])


def _refused(launch: Launch, judged: Judgement, refusal: Refusal, releases: tuple[str, ...]) -> Refused:
    program = program_of(launch, judged)
    contexts = known_contexts(program, refusal.guard) if program is not None else ()
    found = []
    for context in contexts or [Context()]:
        found.append(_refused_at(launch, program, refusal, releases, context))
        if any(spot.is_written for spot in found[-1].spots):
            return found[-1]
    return found[0]._replace(spots=(*found[0].spots, *leading_to(launch, judged, refusal)))


def _refused_at(
    launch: Launch, program: StartProgram | None, refusal: Refusal, releases: tuple[str, ...], context: Context
) -> Refused:
    spots = [spot_of(launch, refusal.key_of(name)) for name, _ in refusal.values]
    around = [spot for spot in _led_by(launch, program, refusal, context) if spot.key not in {one.key for one in spots}]
    if any(spot.is_written for spot in (*spots, *around)):
        around = [spot for spot in around if spot.is_written]
    return Refused(refusal, releases, context, (*spots, *around))


def _led_by(launch: Launch, program: StartProgram | None, refusal: Refusal, context: Context) -> list[Spot]:
    """The settings that lead upstream to a guard, or to what it reads."""
    texts = (*context.around, *context.passed, *context.behind)
    names = [refusal.key_of(name) for text in texts for name, _ in names_in(tree_of(text), path_of) if "." in name]
    if program is not None and launch.dialect in COMMAND_LINES:
        names += options_behind(launch, program, refusal, (*context.conditions, *context.passed))
    return list({spot.key: spot for spot in map(partial(spot_of, launch), dict.fromkeys(names))}.values())


def _fixes(launch: Launch, item: Refused) -> tuple[Fix, ...]:
    from megatron_hcp.judge.start.fixes import fixes_for

    context = [spot for spot in item.spots[len(item.refusal.values) :] if spot.is_written]
    return fixes_for(launch, item.refusal, context)


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
