"""Guards that stay open because the launch hides a setting that they read.

Every hidden setting that is a fact is tried at its legal values, as for rules: the guard leaves the launch undecided if
it refuses at one of them. What the launch leaves out has upstream's default, and what a recipe or
a model sets is theirs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from megatron_hcp.judge.report import Finding, Undecided
from megatron_hcp.judge.start.judged import judged_again
from megatron_hcp.judge.start.keys import fact_of
from megatron_hcp.judge.verdict.legal import legal_values
from megatron_hcp.judge.verdict.undecided import entry_of
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.hidden import Hidden, hidden
from megatron_hcp.rules.rule import Rule, Severity
from megatron_hcp.validators.outcome import Judgement

_MOST_TRIALS, _MOST_STEPS, _MOST_STEPS_OF_ONE = 60, 40_000, 10_000
"""For all guards of a launch together: half a second. One with thousands of pipeline stages alone takes as long."""


def undecided_by_guards(launch: Launch, judged: Judgement) -> tuple[Undecided, ...]:
    """What the launch hides although a guard depends on it, one entry for each reason."""
    names = {name: fact_of(launch, name) for guard in judged.open for name in guard.unknown}
    facts = dict.fromkeys(fact for fact in names.values() if fact is not None and fact in launch.unknown)
    needs: dict[Hidden, list[str]] = {}
    trials = _GuardTrials(launch, judged)
    for fact in facts:
        found = hidden(launch, fact)
        decides = {*_OF_THE_MODEL, *(name for name, other in names.items() if other == fact)}
        if found is not None and found.hides == "word" and trials.may_refuse(fact, decides):
            needs.setdefault(found, []).append(fact)
    return tuple(entry_of(launch, found, facts) for found, facts in needs.items())


def refused_without(
    launch: Launch, judged: Judgement, rules: Iterable[Rule], fired: Iterable[Finding], asked: Container[str]
) -> tuple[Finding | Undecided, ...]:
    """What a guard refuses because the launch doesn't set a variable of the environment.

    A script that takes in nothing unknown has not set it: an error. A configuration doesn't say what the job that uses
    it sets: a warning. Where the launch hides its environment, it is undecided. A variable that a rule asked for is
    left to it: it says itself that it isn't checked.
    """
    found: list[Finding | Undecided] = []
    refusing = {refusal.guard for refusal in judged.refusals}
    without: dict[str, Judgement | None] = {}
    for guard, (name, *others) in ((item.guard, item.unknown) for item in judged.open if item.unknown):
        if (
            guard in refusing
            or others
            or name in asked
            or name in _SET_BY_CONTAINERS
            or not name.startswith(_ENVIRONMENT)
        ):
            continue
        unset = launch._replace(facts={**launch.facts, name: Fact(None, "assumed")})
        if name not in without:
            without[name] = judged_again(unset, judged, _MOST_STEPS_OF_ONE)
        again = without[name]
        if again is not None and all(refusal.guard != guard for refusal in again.refusals):
            continue
        variable = name.removeprefix(_ENVIRONMENT)
        if again is None or hidden(launch, name) is not None:
            reason = f"upstream refuses the launch unless the job sets {variable}, which the launch doesn't show"
            found.append(Undecided(reason, (name,), None, f"state it with --assume {name}=VALUE"))
            continue
        from megatron_hcp.judge.start.findings import findings_of  # few launches have anything to say here

        severity: Severity = "error" if launch.reading.form == "shell" else "warning"
        for said in findings_of(unset, (again,), rules, fired):
            if said.problem.guard == guard.slug:
                message = f"{said.problem.message}, unless the job sets {variable}"
                found.append(said._replace(problem=said.problem._replace(message=message), severity=severity))
    return tuple(dict.fromkeys(found))


_ENVIRONMENT = "env."
_SET_BY_CONTAINERS = frozenset({"env.TORCH_CUDA_ARCH_LIST"})
"""What a framework's own container sets, and no launch shows: the message in NeMo-RL's lm_policy.py says so."""


_OF_THE_MODEL = ("model_type",)
"""What upstream asks the model for; hcp answers by several facts."""


class _GuardTrials:
    """Tries values of hidden facts, up to a bound; what is left untried then may refuse the launch."""

    def __init__(self, launch: Launch, judged: Judgement) -> None:
        self._launch, self._judged = launch, judged
        before = {refusal.guard for refusal in judged.refusals}
        self._open = [one for one in judged.open if one.guard not in before]
        self._opened = {one.guard for one in self._open}
        self._left, self._steps = _MOST_TRIALS, _MOST_STEPS

    def may_refuse(self, fact: str, decides: set[str]) -> bool:
        """Whether a guard that was open refuses the launch with one of the legal values of a hidden fact, by which the
        settings in `decides` are known. It cannot if it stands under a condition that stays unknown, or is one."""
        if all(any(decides.isdisjoint(names) for names in one.within) for one in self._open):
            return False
        return any(self._refuses(fact, value) for value in legal_values(self._launch, fact))

    def _refuses(self, name: str, value: object) -> bool:
        if self._left <= 0 or self._steps <= 0:
            return True
        unknown = {other: why for other, why in self._launch.unknown.items() if other != name}
        facts = {**self._launch.facts, name: Fact(value, "assumed")}
        again = judged_again(self._launch._replace(facts=facts, unknown=unknown), self._judged, _MOST_STEPS_OF_ONE)
        self._left -= 1
        self._steps -= _MOST_STEPS_OF_ONE if again is None else again.steps
        return again is not None and any(refusal.guard in self._opened for refusal in again.refusals)
