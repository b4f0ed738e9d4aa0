"""Whether a launch's releases are newer than what was read, and what that makes of a finding.

A rule about a fault or a limit of releases that weren't read is a note: the fault may be gone. Other rules say as of
when they hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.judge.report import Finding, Undecided
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.facts.last_read import LastRead, last_read, of_package
from megatron_hcp.rules.known.row import PACKAGES
from megatron_hcp.rules.rule import Problem, Rule
from megatron_hcp.rules.view import Unknown, View

UNREAD_EFFECTS = ("silent", "crash", "hang")
"""Effects of a fault for which a launch isn't ok, although nobody knows whether its release still has it."""
_NOT_READ = "not read"
_NAMES: dict[str, str] = {"nvrx": "nvidia-resiliency-ext", **dict(PACKAGES.items())}


class Age(NamedTuple):
    """A stated version beyond what was read.

    `last` is the nearest that was read. `is_of_branch`: the version is a build of that branch; whether its commit is
    newer than the one read isn't known.
    """

    package: str
    version: str
    last: LastRead
    is_of_branch: bool = False

    @property
    def name(self) -> str:
        """`Transformer Engine 2.21.0`."""
        return f"{_NAMES[self.package]} {self.version}"

    @property
    def as_of(self) -> str:
        """`as of megatron-core 0.19.2, the last read`."""
        last = self.last
        what = last.version if last.revision == "release" else f"{last.revision} of {last.date}"
        return f"as of {_NAMES[self.package]} {what}, the last read"

    def __str__(self) -> str:
        """`megatron-core 0.21.0 was not read (last read: 0.19.2, 2026-09-18)`."""
        if self.is_of_branch:
            last = self.last
            return f"{self.name} is a build of {last.revision}, last read at {last.commit[:10]} of {last.date}"
        return f"{self.name} was not read (last read: {self.last})"


def ages_of(launch: Launch) -> tuple[Age, ...]:
    """The launch's versions that are beyond what was read, in the table's order."""
    packages = dict.fromkeys(row.package for row in last_read() if row.package in launch.facts)
    return tuple(age for package in packages if (age := age_of(View(launch), package)) is not None)


def age_of(v: View, package: str) -> Age | None:
    """How a package's version lies beyond what was read; None if it was read or isn't known.

    A version whose fact has the origin `upstream` was read from the user's own sources, so it counts as read.
    """
    fact, newest = v.fact(package), of_package(package)
    if fact is None or newest is None or fact.origin == "upstream":
        return None
    try:
        release = v.release(package)
    except Unknown:
        return None
    branch = v.fact("mcore_branch") if package == "mcore" else None
    is_build = not str(fact.value).replace(".", "").isdecimal()
    if branch is not None and branch.value == "dev":
        return _of_branch(package, str(fact.value), release, of_package(package, "dev") or newest)
    if release <= newest.numbers:
        return None
    main = of_package(package, "main")
    if main is None or main.numbers <= newest.numbers or release[:2] > main.numbers[:2]:
        return Age(package, str(fact.value), newest)
    if is_build or (branch is not None and branch.origin in ("launch", "assumed")):
        return _of_branch(package, str(fact.value), release, main)
    return Age(package, str(fact.value), main)


def _of_branch(package: str, version: str, release: tuple[int, int, int], last: LastRead) -> Age | None:
    if release[:2] < last.numbers[:2]:
        return None  # an older state of the branch
    commit = version.partition("+")[2].removeprefix("g")
    if len(commit) >= 7 and last.commit.startswith(commit):
        return None
    return Age(package, version, last, is_of_branch=release[:2] <= last.numbers[:2])


def as_a_note(v: View, rule: Rule, problem: Problem) -> Problem:
    """The problem of a fault or limit of releases, as a note if the launch's release wasn't read."""
    age = age_of(v, rule.limit_of)
    if age is None or age.is_of_branch:
        return problem
    message = f"{_NOT_READ}: last read {age.last}; up to there {problem.message}"
    return problem._replace(message=message, severity="info")


def dated(problem: Problem, rule: Rule, ages: Iterable[Age]) -> Problem:
    """The problem with what it was read from, where the launch runs something newer."""
    projects = {"megatron-lm" if source.repo == "megatron-core" else source.repo for source in rule.source}
    said = [age.as_of for age in ages if age.last.project in projects and age.as_of not in problem.message]
    if rule.last or not said or is_unread_note(rule, problem):
        return problem
    return problem._replace(message="; ".join((problem.message, *said)))


def not_read(launch: Launch, findings: Iterable[Finding]) -> list[Undecided]:
    """What stays undecided: faults that the last release read has, in a release that wasn't, one entry a package."""
    by_package: dict[str, list[str]] = {}
    for finding in findings:
        if finding.effect in UNREAD_EFFECTS and is_unread_note(finding.rule, finding.problem):
            by_package.setdefault(finding.rule.limit_of, []).append(finding.rule.id)
    return [_undecided(launch, package, rules) for package, rules in by_package.items()]


def is_unread_note(rule: Rule, problem: Problem) -> bool:
    """Whether it is a note because the release wasn't read: `as_a_note` made it one."""
    return bool(rule.limit_of) and problem.severity == "info" and problem.message.startswith(_NOT_READ)


def _undecided(launch: Launch, package: str, rules: list[str]) -> Undecided:
    age = age_of(View(launch), package)
    assert age is not None, f"{rules} are notes, so {package} wasn't read"
    return Undecided(
        str(age),
        (package,),
        launch.facts[package].location,
        f"look up whether {age.name} still has {' '.join(rules)} (hcp explain {rules[0]})",
    )
