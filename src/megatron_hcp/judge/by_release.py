"""What a launch that states no release would fail of in some: each such rule is a warning that names the releases."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from megatron_hcp.judge.report import Finding
from megatron_hcp.judge.ruling import Ruling, judge
from megatron_hcp.judge.run import finding_of, presumed_facts
from megatron_hcp.judge.verdict.undecided import doubted
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.facts.releases import RELEASES
from megatron_hcp.rules.known.row import PACKAGES
from megatron_hcp.rules.rule import Severity
from megatron_hcp.rules.view import View

_EFFECTS = ("silent", "crash", "hang")


def in_some_releases(launch: Launch, rulings: Iterable[Ruling]) -> list[Finding]:
    """What rules that lack only a release find: an error in some, or a warning in the newest. No fix could be tried."""
    waiting = (ruling for ruling in rulings if ruling.lacks in RELEASES and ruling.lacks not in launch.facts)
    found = (_in_some(launch, ruling) for ruling in waiting)
    return [finding for finding in found if finding is not None]


def _in_some(launch: Launch, ruling: Ruling) -> Finding | None:
    package = ruling.lacks
    assert package in PACKAGES, f"{ruling.rule.id} lacks {package}, which is no package"
    having = {release: _with(launch, package, release) for release in RELEASES[package]}
    tried = {release: judge(View(one), ruling.rule) for release, one in having.items()}
    refused = [release for release, one in tried.items() if one.is_error]
    if not refused and _severity(tried[RELEASES[package][-1]]) == "warning":
        refused = [release for release, one in tried.items() if _severity(one) == "warning"]
    if not refused:
        return None
    last = tried[refused[-1]]
    problem = last.problem
    assert problem is not None, f"{ruling.rule.id} has a severity without a problem"
    if (problem.effect or ruling.rule.effect) not in _EFFECTS or doubted(launch, last) is not None:
        return None
    only_in = f"{PACKAGES[package]} {_spans(package, refused)}"
    told = problem._replace(
        message=f"in {only_in}: {problem.message}",
        found=f"no release stated; in {refused[-1]}: {problem.found}",
        severity="warning",
        fixes=(),
        only_in=only_in,
    )
    there = having[refused[-1]]
    return finding_of(there, ruling.rule, told, presumed_facts(there))


def _severity(ruling: Ruling) -> Severity | None:
    """The severity of what the rule finds."""
    return None if ruling.problem is None else ruling.problem.severity or ruling.rule.severity


def _with(launch: Launch, package: str, release: str) -> Launch:
    return launch._replace(facts={**launch.facts, package: Fact(release, "assumed")})


def _spans(package: str, refused: list[str]) -> str:
    """`up to 0.12.3`, `0.16.1 to 0.18.2`, `2.18.0 and newer`; several with `and` between."""
    runs = [list(run) for is_in, run in groupby(RELEASES[package], key=refused.__contains__) if is_in]
    return " and ".join(_span(RELEASES[package], run[0], run[-1]) for run in runs)


def _span(releases: tuple[str, ...], first: str, last: str) -> str:
    if last == releases[-1]:
        return f"{first} and newer"
    if first == releases[0]:
        return f"up to {last}"
    return first if first == last else f"{first} to {last}"
