"""Judges a launch by upstream's own start-up: findings, what stays undecided, and which code judged."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from megatron_hcp.judge.report import Finding, StartVerdict, Undecided
from megatron_hcp.judge.start.judged import judgements, newest_first
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.rule import Rule
from megatron_hcp.validators.outcome import Judgement


def started(
    launch: Launch,
    rules: Iterable[Rule],
    fired: Iterable[Finding],
    *,
    fixes: bool,
    verdict: bool,
    asked: Container[str] = (),
) -> StartVerdict:
    """What the START rules among the rules say; `fired` are the findings of the others, `asked` the facts they read."""
    fired = list(fired)

    def speaks(outcome: Judgement) -> bool:
        if not outcome.refusals:
            return False
        from megatron_hcp.judge.start.findings import findings_of

        return bool(findings_of(launch, (outcome,), rules, fired))

    by_repo = judgements(launch, speaks)
    findings: list[Finding] = []
    undecided: list[Undecided] = []
    for judged in by_repo:
        # Most launches have nothing to say of: what words it is loaded only then.
        if any(one.refusals for one in judged):
            from megatron_hcp.judge.start.findings import findings_of

            findings += findings_of(launch, judged, rules, fired, fixes=fixes)
        elif verdict and len(judged) == 1:
            from megatron_hcp.judge.start.later import refused_since

            findings += refused_since(launch, judged[0], rules, fired)
        if verdict and judged[-1].open:
            said = tuple(_open(launch, judged[-1], rules, fired, asked))
            findings += (one for one in said if isinstance(one, Finding))
            undecided += (one for one in said if isinstance(one, Undecided))
    return StartVerdict(
        tuple(findings), tuple(dict.fromkeys(undecided)), tuple(one for each in by_repo for one in each)
    )


def _open(
    launch: Launch, judged: Judgement, rules: Iterable[Rule], fired: list[Finding], asked: Container[str]
) -> Iterator[Finding | Undecided]:
    if launch.unknown:
        from megatron_hcp.judge.start.undecided import undecided_by_guards

        yield from undecided_by_guards(launch, judged)
    if any(name.startswith("env.") and name not in asked for item in judged.open for name in item.unknown):
        from megatron_hcp.judge.start.undecided import refused_without

        yield from refused_without(launch, judged, rules, fired, asked)


def errors_at_start(launch: Launch, rules: Iterable[Rule], fired: Iterable[Finding]) -> list[Finding]:
    """The errors of `started` alone: what all releases of a repository refuse."""
    rules, fired = list(rules), list(fired)
    return [one for outcomes in newest_first(launch) for one in _errors_of(launch, outcomes, rules, fired)]


def _errors_of(
    launch: Launch, outcomes: Iterable[Judgement], rules: Iterable[Rule], fired: list[Finding]
) -> list[Finding]:
    """The findings of a repository if all its releases refuse; the first one that doesn't ends the search."""
    from megatron_hcp.judge.start.findings import findings_of, to_say

    judged = []
    for outcome in outcomes:
        if not outcome.refusals or not to_say(launch, (outcome,), fired):
            return []
        judged.append(outcome)
    return findings_of(launch, judged[::-1], rules, fired)
