"""Which fixes are offered: each is tried on the launch; one that removes the cause goes to all findings it clears."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from megatron_hcp.judge.repair.fixes import apply_fix, written
from megatron_hcp.judge.report import Finding, NotChecked
from megatron_hcp.judge.run import run, start_of
from megatron_hcp.judge.verdict.legal import legal_values
from megatron_hcp.launch.dialects.table import FACTS, keys_of
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.rules.rule import START, Fix, Rule
from megatron_hcp.rules.view import Unknown, View

RulesFor = Callable[[Launch], Iterable[Rule]]
Reported = tuple[Launch, Sequence[Finding], Sequence[NotChecked]]
_LAYOUT = ("tp", "pp", "ep", "etp")
_KEPT = ("cp", "seq_length", "global_batch_size")
"""What a job is about: a fix that makes it smaller solves no more errors than another one."""
_MEETING = frozenset(("SLURM013", "SLURM014"))
"""What more nodes need beside their number, and no fix can write: a node's name."""
_MEET = "--rdzv-backend c10d --rdzv-endpoint HOST:29500"
_MANY = 4
"""How many fixes of the cause are offered for a finding that follows from it."""


class _Before(NamedTuple):
    """What the rules report for the launch without any fix."""

    launch: Launch
    errors: frozenset[str]
    """The launch's own errors, which a fix may clear."""
    tolerated: frozenset[str]
    """Errors that don't count against a fix."""
    unchecked: frozenset[str]


class Trial(NamedTuple):
    """What one fix does to its launch. `refused` says why it isn't offered, "" if it is."""

    finding: Finding
    fix: Fix
    refused: str
    cleared: frozenset[str] = frozenset()
    """The errors that it clears."""
    doubts: tuple[str, ...] = ()
    """Settings that error rules need with this fix and didn't need without it."""
    made: tuple[Finding, ...] = ()
    """The errors that it creates."""
    remaining: tuple[str, ...] = ()
    """The launch's other errors about the same facts, which it leaves."""
    shrinks: bool = False
    """Whether it leaves less context parallelism, shorter sequences or a smaller batch."""
    parted: bool = False
    """Whether its nodes don't meet yet."""

    @property
    def gives_up(self) -> bool:
        """Whether it removes a feature that the launch requests, or makes smaller what the job is about."""
        return self.shrinks or (bool(self.fix.edits) and not any(self.fix.edits.values()))


def offer_all(
    pairs: Sequence[tuple[Launch, Finding]], rules_for: RulesFor, errors: Iterable[str], reported: Reported
) -> list[Finding]:
    """The findings, each with its fixes in the order to try them; `errors` are the ids of all errors found.

    `reported` is what the rules report for the first launch, without any fix.

    A fix is offered if it clears its rule and creates no error; its text lists what error rules could then not decide.
    A fix of another finding that clears more errors at once removes the cause: it is offered instead of fixes that
    would suit only the finding that follows from it.
    """
    befores = {reported[0].reading.role: _before(*reported, errors)}
    trials: list[list[Trial]] = []
    for launch, finding in pairs:
        if finding.problem.fixes and finding.role not in befores:
            befores[finding.role] = _before(launch, *_judged(launch, rules_for), errors)
        tried = [_trial(befores[finding.role], finding, fix, rules_for) for fix in finding.problem.fixes]
        if tried and all(trial.refused or trial.fix.edits.get("cp") == 1 for trial in tried):
            # Before a fix that has no context parallelism left.
            tried = [*_with_what_it_needs(befores[finding.role], tried, rules_for), *tried]
        trials.append(tried)
    good = [trial for tried in trials for trial in tried if not trial.refused and trial.finding.severity != "info"]
    offered = []
    for (launch, finding), tried in zip(pairs, trials):
        own = _keeping_cp(sorted((trial for trial in tried if not trial.refused), key=_rank))
        best = own if finding.severity == "info" else _of_the_cause(finding, own, good)
        offered.append(finding._replace(fixes=tuple(written(launch, _said(launch, trial)) for trial in best)))
    return offered


def why_none(launch: Launch, finding: Finding, rules_for: RulesFor) -> str:
    """Why no fix is offered for a finding, in one line that ends with what is wanted."""
    wanted = f"wanted: {finding.problem.wanted}"
    if not finding.problem.fixes:
        return f"no single setting of this launch fixes it; {wanted}"
    before = _before(launch, *_judged(launch, rules_for), ())
    trials = [
        _trial(before._replace(tolerated=before.errors), finding, fix, rules_for) for fix in finding.problem.fixes
    ]
    reasons = dict.fromkeys(f"{_words(launch, trial.fix)} {trial.refused}" for trial in trials if trial.refused)
    return "; ".join([*reasons, wanted])


def _before(
    launch: Launch, found: Iterable[Finding], unchecked: Iterable[NotChecked], errors: Iterable[str]
) -> _Before:
    own = _errors(found)
    missing = frozenset(item.rule.id for item in unchecked if item.rule.severity == "error")
    return _Before(launch, own, own.union(errors), missing)


def _judged(launch: Launch, rules_for: RulesFor, *, errors_only: bool = True) -> tuple[list[Finding], list[NotChecked]]:
    """What the rules report; of upstream's start-up, with `errors_only`, the errors."""
    rules = tuple(rules_for(launch))
    done = run(View(launch), (rule for rule in rules if not rule.last))
    findings = [*done.findings, *start_of(launch, rules, done.findings, errors_only=errors_only).findings]
    return findings, [item for item in done.not_checked if item.rule.severity == "error"]


def _errors(found: Iterable[Finding]) -> frozenset[str]:
    return frozenset(item.id for item in found if item.severity == "error")


def _trial(before: _Before, finding: Finding, fix: Fix, rules_for: RulesFor) -> Trial:
    fixed = apply_fix(before.launch, fix)
    if fixed is None:
        return Trial(finding, fix, "cannot be written in this launch")
    found, unchecked = _judged(fixed, rules_for, errors_only=not finding.rule.id.startswith(START))
    left = {item.id for item in found}
    new = sorted(_errors(found) - before.tolerated - (_MEETING if "nodes" in fix.edits else frozenset()))
    lost = [item for item in unchecked if item.rule.id not in before.unchecked]
    missing = {item.rule.id: [name for name in item.needs if _is_setting(fixed, name)] for item in lost}
    if finding.id in left:
        refused = "is not enough"
    elif new:
        refused = f"is rejected by {', '.join(new)}"
    elif missing.get(finding.rule.id):
        refused = f"leaves the question open without {', '.join(_keys(fixed, missing[finding.rule.id]))}"
    elif (name := _never_legal(fixed, lost, unchecked)) is not None:
        refused = f"is refused at every {_keys(fixed, (name,))[0]}"
    else:
        refused = ""
    doubts = tuple(dict.fromkeys(name for names in missing.values() for name in names))
    made = tuple(item for item in found if item.id in new)
    parted = not _MEETING.isdisjoint(left - before.errors)
    shrinks = any(_is_less(before.launch, fix, name) for name in _KEPT)
    remaining = _remaining(before, finding, found)
    return Trial(finding, fix, refused, before.errors - _errors(found), doubts, made, remaining, shrinks, parted)


def _remaining(before: _Before, finding: Finding, found: Iterable[Finding]) -> tuple[str, ...]:
    """Errors that were there before, about facts of the finding: whoever makes the fix still has a job that fails."""
    mine = set(finding.problem.facts)
    left = (item for item in found if item.id in before.errors and item.id != finding.id)
    return tuple(dict.fromkeys(item.rule.id for item in left if not mine.isdisjoint(item.problem.facts)))


def _is_less(launch: Launch, fix: Fix, name: str) -> bool:
    fact, value = launch.facts.get(name), fix.edits.get(name)
    return fact is not None and type(fact.value) is int and type(value) is int and value < fact.value


def _never_legal(fixed: Launch, lost: Iterable[NotChecked], unchecked: Sequence[NotChecked]) -> str | None:
    """A size of the layout that a fix leaves open, and at no value of which the error rules that need it all pass.

    Only of the layout: a launch may choose it, and the model's own sizes are another model.
    """
    for name in dict.fromkeys(need for item in lost for need in item.needs if need in _LAYOUT):
        rules = [item.rule for item in unchecked if name in item.needs]
        values = [value for value in legal_values(fixed, name) if value is not None]
        if values and all(any(_fails(rule, fixed, name, value) for rule in rules) for value in values):
            return name
    return None


def _fails(rule: Rule, launch: Launch, name: str, value: Any) -> bool:
    view = View(launch._replace(facts={**launch.facts, name: Fact(value, "launch")}))
    try:
        problem = rule.check(view) if rule.applies(view) else None
    except Unknown:
        return False
    return problem is not None and (problem.severity or rule.severity) == "error"


def _with_what_it_needs(before: _Before, tried: Sequence[Trial], rules_for: RulesFor) -> list[Trial]:
    """Fixes that create one other error, each with a fix of that error: two settings have to change at once."""
    return [
        _trial(before, trial.finding, _both(trial.fix, more), rules_for)
        for trial in tried
        if len(trial.made) == 1
        for more in trial.made[0].problem.fixes
    ]


def _both(one: Fix, other: Fix) -> Fix:
    effect = other.effect if other.edits.keys() >= one.edits.keys() else f"{one.effect}; {other.effect}"
    return Fix({**one.edits, **other.edits}, effect, one.renames + other.renames)


def _is_setting(launch: Launch, name: str) -> bool:
    """Whether a fact can be written in the launch: versions and the cluster are stated separately."""
    return name in FACTS and bool(keys_of(FACTS[name], launch.dialect, launch.reading.role))


def _rank(trial: Trial) -> int:
    """Fixes that clear the most errors come first; rules list theirs in order of preference."""
    return -_weight(trial)


def _keeping_cp(ranked: Sequence[Trial]) -> list[Trial]:
    """The fixes in their order, one that ends context parallelism after those that only change another number.

    What else would have to go, a feature or the pipeline, is weighed by the rule.
    """
    ends = [trial for trial in ranked if trial.fix.edits.get("cp") == 1]
    last = max((at for at, trial in enumerate(ranked) if _resizes(trial)), default=-1)
    moved = [trial for trial in ends if ranked.index(trial) < last and _weight(trial) == _weight(ranked[last])]
    kept = [trial for trial in ranked if trial not in moved]
    at = kept.index(ranked[last]) + 1 if moved else 0
    return [*kept[:at], *moved, *kept[at:]]


def _resizes(trial: Trial) -> bool:
    """Whether a fix gives one number of the layout or the batch another value; a pipeline that ends is a feature."""
    edits = trial.fix.edits
    is_number = len(edits) == 1 and all(type(value) is int for value in edits.values())
    return is_number and not trial.gives_up and edits.get("pp") != 1


def _weight(trial: Trial) -> int:
    return min(1, len(trial.cleared)) if trial.gives_up else len(trial.cleared)


def _of_the_cause(finding: Finding, own: list[Trial], good: list[Trial]) -> list[Trial]:
    """The finding's own fixes, or those of its cause: another finding's fixes that clear it and more errors at once."""
    others = [trial for trial in good if finding.id in trial.cleared and trial.finding.role == finding.role]
    if not others or (own and finding.severity != "error"):
        return own
    most = max((_weight(trial) for trial in own), default=0)
    best = max(_weight(trial) for trial in others)
    if best <= most:
        return own
    shared = {_key(trial.fix): trial for trial in sorted(others, key=_rank) if _weight(trial) == best}
    return list(shared.values())[:_MANY]


def _key(fix: Fix) -> str:
    return repr((sorted(fix.edits.items()), fix.renames))


def _said(launch: Launch, trial: Trial) -> Fix:
    """The fix, with what it leaves, as an error or undecided, in its text."""
    effect = trial.fix.effect
    if trial.parted:
        effect += f", and {_MEET} on each node"
    if trial.remaining:
        effect += f"; {', '.join(trial.remaining)} remain{'s' if len(trial.remaining) == 1 else ''}"
    if trial.doubts:
        effect += f"; unchecked without {', '.join(_keys(launch, trial.doubts))}"
    return trial.fix._replace(effect=effect)


def _keys(launch: Launch, names: Iterable[str]) -> list[str]:
    return [keys_of(FACTS[name], launch.dialect, launch.reading.role)[0] for name in names]


def _words(launch: Launch, fix: Fix) -> str:
    return " ".join(written(launch, fix).overrides)
