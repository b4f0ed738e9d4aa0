"""What a rule is, and what its check returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast, get_args

from megatron_hcp.ground.place import Location
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.fact import Dialect
from megatron_hcp.rules.view import View

Severity = Literal["error", "warning", "info"]
Effect = Literal["silent", "crash", "hang", "slow", "oom", "note"]
Branch = Literal["main", "dev"]
Repo = Literal[
    "megatron-lm",
    "megatron-core",
    "megatron-bridge",
    "verl",
    "transformer-engine",
    "nemo-rl",
    "ms-swift",
    "slime",
    "miles",
    "nvidia-resiliency-ext",
]
Where = Literal["pypi", "checkout"]
Stage = Literal["config", "init", "first-forward", "training", "never"]


START = "START"
"""The family of rules that stand for a function of upstream each, with a finding for each guard in it that refuses."""


class Source(NamedTuple):
    """Where upstream's code says so. `contains` is a short text inside the named function or class; never a line.

    `versions` is a PEP 440 specifier of the releases in which it holds; rules state the first that was read. `where`:
    `pypi` if the file is in a wheel or sdist on PyPI, `checkout` if only the repository has it. `absent` is a text that
    must NOT be there (for "nothing checks this"). `branches` are the repository's branches that contain it, if their
    version is in the range; so do the releases, unless only dev is named. () means releases only.
    """

    repo: str
    path: str
    qualname: str
    contains: str = ""
    versions: str = ""
    where: Where = "pypi"
    absent: str = ""
    branches: tuple[str, ...] = get_args(Branch)


class Rename(NamedTuple):
    """A key of the launch that is written under another name. `sign`: as in `Setting`, of the new key."""

    old: str
    new: str
    sign: str | None = None


class Fix(NamedTuple):
    """An edit of facts, or other names for keys, and its effect. The value None unsets the key.

    What hcp has no fact for is edited under its key in the launch's dialect.

    The engine writes it in the target's dialect, tries it, and offers it only if it clears its rule and creates no new
    error.
    """

    edits: Mapping[str, Any]
    effect: str
    renames: tuple[Rename, ...] = ()


class Problem(NamedTuple):
    """What a check found. `message` states the consequence; `facts` names the facts involved, the offending one first.

    `severity`, `effect` and `stage` override the rule's if the dialect changes them. `location` is for what has no
    fact; otherwise the location is that of the first fact that has one.
    """

    message: str
    found: str
    wanted: str
    facts: tuple[str, ...]
    fixes: tuple[Fix, ...] = ()
    severity: Severity | None = None
    effect: Effect | None = None
    stage: Stage | None = None
    location: Location | None = None
    guard: str = ""
    """Which of upstream's refusals it is, where the rule stands for many (START001): a slug of its condition."""
    unread: str = ""
    """Why nobody knows whether it holds: the code that the launch runs wasn't read. It is then a note."""
    only_in: str = ""
    """The releases that have it, of a launch that states none. It is then a warning."""


class Example(NamedTuple):
    """A launch in a few words: flags for `mlm`, overrides for the others; `assume` as on the command line.

    A multi-line text is a file's content: an override list or YAML.
    """

    dialect: Dialect
    text: str
    assume: str = ""


class Rule(NamedTuple):
    """One thing that must hold. Pure: reads the view, returns, and raises nothing but `Unknown`."""

    id: str
    severity: Severity
    effect: Effect
    stage: Stage
    source: tuple[Source, ...]
    applies: Callable[[View], bool]
    check: Callable[[View], Problem | None]
    good: Example
    bad: Example
    last: bool = False
    """Checks the check itself (assumptions, accepted findings), not the launch: runs after all others."""
    table: str = ""
    """The module of the table whose row it is; empty for a rule that is a function."""
    only: frozenset[str] | None = None
    """The guards that it stands for, if it stands for a function of upstream; None: all."""
    without: frozenset[str] = frozenset()
    """The guards that it doesn't stand for."""
    recipe_settled: bool = False
    """Checks what a recipe gets right by itself (its layers, its batches): if an unknown recipe or model hides what it
    reads, the rule isn't checked, and the launch is decided without it."""
    limit_of: str = ""
    """The package whose releases have this fault, or lack what the launch needs; a later release may not."""
    may_be_error: bool = False
    """Some of its problems are errors, although its own severity is less."""

    @property
    def is_row(self) -> bool:
        """Whether it is a row of the known faults of releases: it finds nothing while the release isn't known."""
        return bool(self.table and self.limit_of)

    @property
    def title(self) -> str:
        """What holds: the first line of the check's docstring."""
        return self._doc()[0].strip().removesuffix(".")

    @property
    def why(self) -> str:
        """What would be seen if it did not hold: the rest of the check's docstring."""
        return " ".join(self._doc()[2].split())

    def _doc(self) -> tuple[str, str, str]:
        assert self.check.__doc__ is not None, f"{self.id} has no docstring, so no title"
        return self.check.__doc__.partition("\n")


def rule(
    id: str,
    outcome: str,
    *,
    source: tuple[Source, ...],
    applies: Callable[[View], bool],
    good: Example,
    bad: Example,
    last: bool = False,
    recipe_settled: bool = False,
    limit_of: str = "",
    may_be_error: bool = False,
) -> Callable[[Callable[[View], Problem | None]], Rule]:
    """Makes a rule of the decorated function; its docstring's first line is the title, the rest says why.

    `outcome` is its severity, effect and stage: `error crash config`.
    """
    return lambda check: register(
        Rule(
            id,
            *parsed(outcome),
            source,
            applies,
            check,
            good,
            bad,
            last=last,
            recipe_settled=recipe_settled,
            limit_of=limit_of,
            may_be_error=may_be_error,
        )
    )


def parsed(outcome: str) -> tuple[Severity, Effect, Stage]:
    """The severity, effect and stage that an outcome names, such as `error crash config`."""
    severity, effect, stage = outcome.split()
    known = severity in get_args(Severity) and effect in get_args(Effect) and stage in get_args(Stage)
    assert known, f"{outcome} is no severity, effect and stage"
    return cast(Severity, severity), cast(Effect, effect), cast(Stage, stage)


REGISTERED: dict[str, Rule] = {}
"""The rules of the modules imported so far, by id."""


def register(made: Rule) -> Rule:
    """The same rule, now among those that `rules.registry` finds by their id."""
    REGISTERED[made.id] = made
    return made
