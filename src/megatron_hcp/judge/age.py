"""Whether a launch's releases are newer than what was read, and what that makes of a finding.

A rule about a fault or a limit of releases that weren't read is a note: the fault may be gone. Other rules say as of
when they hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.ground.visible import visible
from megatron_hcp.judge.report import Finding, Undecided
from megatron_hcp.launch.fact import Launch, UpstreamTree
from megatron_hcp.launch.facts.last_read import LastRead, last_read, of_package
from megatron_hcp.rules.known.row import PACKAGES
from megatron_hcp.rules.rule import Problem, Rule, Source
from megatron_hcp.rules.view import Unknown, View

UNREAD_EFFECTS = ("silent", "crash", "hang")
"""Effects of a fault for which a launch isn't ok, although nobody knows whether its release still has it."""
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


def may_be_unread(launch: Launch, rule: Rule) -> bool:
    """Whether the launch says what code it runs: its release, the rule's branch, or a tree of its own. Costs little."""
    return rule.limit_of in launch.facts or "mcore_branch" in launch.facts or bool(launch.reading.upstream)


def as_a_note(v: View, rule: Rule, problem: Problem) -> Problem:
    """The problem as a note if it rests on code that wasn't read: a fault or limit of releases in a newer one, a rule
    whose code the launch's branch lacks. The code that `--upstream` names decides, if the rule cites it.

    `v.asked` holds what the rule read: one that read the branch has decided for it.
    """
    knows_branch = "mcore_branch" in v.asked
    tree = _tree_of(v.launch, rule)
    if tree is not None:
        lacks = _lacking(rule, tree)
        return _note(problem, lacks, f"{lacks}; elsewhere, ") if lacks else problem
    age = age_of(v, rule.limit_of) if rule.limit_of else None
    if age is not None and not age.is_of_branch:
        return _note(problem, str(age), f"last read {age.last}; up to there ")
    branch = v.launch.facts.get("mcore_branch")
    if branch is not None and not knows_branch and branch.value == "dev" and _is_not_on(rule, "dev"):
        lacks = "megatron-core's dev branch lacks the code that this rule cites"
        return _note(problem, lacks, f"{lacks}; elsewhere, ")
    return problem


def _note(problem: Problem, unread: str, before: str) -> Problem:
    return problem._replace(message=f"not read: {before}{problem.message}", severity="info", unread=unread)


def _is_not_on(rule: Rule, branch: str) -> bool:
    """Whether the rule cites Megatron-LM alone, and nothing that the branch has."""
    return all(_project(source) == "megatron-lm" and branch not in source.branches for source in rule.source)


def _tree_of(launch: Launch, rule: Rule) -> UpstreamTree | None:
    """The user's own tree of the package whose fault or limit the rule is about."""
    trees = launch.reading.upstream if rule.limit_of else ()
    project = next((row.project for row in last_read() if row.package == rule.limit_of), "")
    return next((tree for tree in reversed(trees) if tree.repo == project), None)


def _lacking(rule: Rule, tree: UpstreamTree) -> str:
    """What the tree lacks of the code that the rule cites; "" if it has all of it."""
    from pathlib import Path

    from megatron_hcp.judge.anchored import status_of

    own = [source for source in rule.source if _project(source) == tree.repo]
    if all(status_of(source, Path(tree.path))[0] in ("holds", "moved") for source in own):
        return ""
    return f"{visible(tree.path)[:200]} lacks the code that this rule cites"


def _project(source: Source) -> str:
    return "megatron-lm" if source.repo == "megatron-core" else source.repo


def dated(problem: Problem, rule: Rule, ages: Iterable[Age]) -> Problem:
    """The problem with what it was read from, where the launch runs something newer."""
    projects = set(map(_project, rule.source))
    said = [age.as_of for age in ages if age.last.project in projects and age.as_of not in problem.message]
    if rule.last or not said or problem.unread:
        return problem
    return problem._replace(message="; ".join((problem.message, *said)))


def not_read(launch: Launch, findings: Iterable[Finding]) -> list[Undecided]:
    """What stays undecided: faults in code that wasn't read, one entry a reason."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        if finding.effect in UNREAD_EFFECTS and (reason := finding.problem.unread):
            by_reason.setdefault((finding.rule.limit_of or "mcore", reason), []).append(finding.rule.id)
    return [_undecided(launch, package, reason, rules) for (package, reason), rules in by_reason.items()]


def _undecided(launch: Launch, package: str, reason: str, rules: list[str]) -> Undecided:
    fact = launch.facts.get(package)
    what = f"{_NAMES[package]}{'' if fact is None else f' {fact.value}'}"
    place = None if fact is None else fact.location
    ids = " ".join(rules)
    return Undecided(reason, (package,), place, f"look up whether {what} still has {ids} (hcp explain {rules[0]})")
