"""What a launch that states no release would fail of in some: each such rule is a warning that names the releases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.judge.report import Finding
from megatron_hcp.judge.ruling import Ruling, judge
from megatron_hcp.judge.run import finding_of, presumed_facts
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.facts.releases import RELEASES
from megatron_hcp.rules.known.row import PACKAGES
from megatron_hcp.rules.rule import Severity
from megatron_hcp.rules.view import View

_EFFECTS = ("silent", "crash", "hang")


class BySomeRelease(NamedTuple):
    """What rules that lack only a release find, and the ids of those that find nothing in any possible release."""

    findings: list[Finding]
    ruled_out: frozenset[str]


def in_some_releases(launch: Launch, rulings: Iterable[Ruling]) -> BySomeRelease:
    """What rules that lack only a release find: an error in some, or a warning in the newest. No fix could be tried.

    Releases that the launch can't have aren't asked about; a rule that then finds nothing at all is decided.
    """
    possible: dict[str, tuple[str, ...]] = {}
    found: list[Finding] = []
    ruled_out: set[str] = set()
    for ruling in rulings:
        package = ruling.lacks
        if package not in RELEASES or package in launch.facts:
            continue
        facts = {**launch.facts}
        view = View(launch._replace(facts=facts))
        tried: dict[str, Ruling] = {}
        for release in RELEASES[package]:
            facts[package] = Fact(release, "assumed")
            tried[release] = judge(view, ruling.rule)
        if all(one.problem is None for one in tried.values()):
            continue
        if package not in possible:  # few launches need it
            from megatron_hcp.judge.possible import possible_releases

            possible[package] = possible_releases(launch, package)
        tried = {release: tried[release] for release in possible[package]}
        finding = _in_some(launch, ruling, tried)
        if finding is not None:
            found.append(finding)
        elif all(one.problem is None and one.lacks is None for one in tried.values()):
            ruled_out.add(ruling.rule.id)
    return BySomeRelease(found, frozenset(ruled_out))


def _in_some(launch: Launch, ruling: Ruling, tried: Mapping[str, Ruling]) -> Finding | None:
    package = ruling.lacks
    assert package in PACKAGES, f"{ruling.rule.id} lacks {package}, which is no package"
    refused = [release for release, one in tried.items() if one.is_error]
    if not refused and _severity([*tried.values()][-1]) == "warning":
        refused = [release for release, one in tried.items() if _severity(one) == "warning"]
    if not refused:
        return None
    last = tried[refused[-1]]
    problem = last.problem
    assert problem is not None, f"{ruling.rule.id} has a severity without a problem"
    if (problem.effect or ruling.rule.effect) not in _EFFECTS:
        return None
    from megatron_hcp.judge.verdict.undecided import doubted

    if doubted(launch, last) is not None:
        return None
    only_in = f"{PACKAGES[package]} {_spans(package, [*tried], refused)}"
    told = problem._replace(
        message=f"in {only_in}: {problem.message}",
        found=f"no release stated; in {refused[-1]}: {problem.found}",
        severity="warning",
        fixes=(),
        only_in=only_in,
    )
    there = _with(launch, package, refused[-1])
    return finding_of(there, ruling.rule, told, presumed_facts(there))


def _severity(ruling: Ruling) -> Severity | None:
    """The severity of what the rule finds."""
    return None if ruling.problem is None else ruling.problem.severity or ruling.rule.severity


def _with(launch: Launch, package: str, release: str) -> Launch:
    return launch._replace(facts={**launch.facts, package: Fact(release, "assumed")})


def _spans(package: str, possible: list[str], refused: list[str]) -> str:
    """`up to 0.12.3`, `0.16.1 to 0.18.2`, `2.18.0 and newer`; several with `and` between."""
    runs = [list(run) for is_in, run in groupby(possible, key=refused.__contains__) if is_in]
    return " and ".join(_span(RELEASES[package][-1], possible[0], run[0], run[-1]) for run in runs)


def _span(newest: str, oldest: str, first: str, last: str) -> str:
    if last == newest:
        return f"{first} and newer"
    if first == oldest:
        return f"up to {last}"
    return first if first == last else f"{first} to {last}"
