"""Guards that stay open because the launch hides a setting that they read.

Every hidden setting that is a fact is tried at its legal values, as for rules: the guard leaves the launch undecided if
it refuses at one of them. What the launch leaves out has upstream's default, and what a recipe or
a model sets is theirs.
"""

from __future__ import annotations

from megatron_hcp.judge.report import Undecided
from megatron_hcp.judge.start.judged import judged_again
from megatron_hcp.judge.start.keys import fact_of
from megatron_hcp.judge.verdict.legal import legal_values
from megatron_hcp.judge.verdict.undecided import entry_of
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.hidden import Hidden, hidden
from megatron_hcp.validators.outcome import Guard, Judgement

_MOST_TRIALS = 60
"""For all guards of a launch together."""


def undecided_by_guards(launch: Launch, judged: Judgement) -> tuple[Undecided, ...]:
    """What the launch hides although a guard depends on it, one entry for each reason."""
    names = {name: fact_of(launch, name) for guard in judged.open for name in guard.unknown}
    facts = dict.fromkeys(fact for fact in names.values() if fact is not None and fact in launch.unknown)
    needs: dict[Hidden, list[str]] = {}
    left = _MOST_TRIALS
    for fact in facts:
        found = hidden(launch, fact)
        if found is None or found.hides != "word":
            continue
        values = legal_values(launch, fact)[:left]
        left -= len(values)
        before = {refusal.guard for refusal in judged.refusals}
        if any(_refuses(launch, judged, fact, value, before) for value in values):
            needs.setdefault(found, []).append(fact)
    return tuple(entry_of(launch, found, facts) for found, facts in needs.items())


def _refuses(launch: Launch, judged: Judgement, name: str, value: object, before: set[Guard]) -> bool:
    """Whether a guard that was open refuses the launch with this value of a hidden fact."""
    unknown = {other: why for other, why in launch.unknown.items() if other != name}
    tried = launch._replace(facts={**launch.facts, name: Fact(value, "assumed")}, unknown=unknown)
    again = judged_again(tried, judged)
    opened = {guard.guard for guard in judged.open}
    return again is not None and any(
        refusal.guard in opened and refusal.guard not in before for refusal in again.refusals
    )
