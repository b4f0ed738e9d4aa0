"""What a rule is, and what its check may look at and answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from hcp.core.place import Location
from hcp.launch.fact import Acceptance, Dialect, Fact, Launch

Severity = Literal["error", "warning", "info"]
Effect = Literal["silent", "crash", "hang", "slow", "oom", "note"]
Repo = Literal["megatron-lm", "megatron-core", "megatron-bridge", "verl", "transformer-engine"]
Where = Literal["pypi", "checkout"]
Stage = Literal["config", "init", "first-forward", "training", "never"]


class Unknown(Exception):
    """A rule asked for a fact that the launch does not state. The engine turns it into `not_checked`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class Source:
    """Where upstream's code says it. `contains` is a short text inside the named function or class; never a line.

    `versions` is a PEP 440 specifier of the releases in which it holds ("" = all known).
    `where`: `pypi` if the file is in a wheel or sdist on PyPI, `checkout` if only the repository has it.
    `absent` is a text that must NOT be there (for "nothing checks this").
    """

    repo: Repo
    path: str
    qualname: str
    contains: str = ""
    versions: str = ""
    where: Where = "pypi"
    absent: str = ""


@dataclass(frozen=True)
class Fix:
    """An edit of facts, and what it does. A value None unsets the key.

    The engine writes it in the target's dialect, tries it, and offers it only if it clears its rule and creates
    no new error.
    """

    edits: Mapping[str, Any]
    effect: str


@dataclass(frozen=True)
class Problem:
    """What a check found. `message` says the consequence; `facts` names the facts involved, the guilty one first.

    `severity`, `effect` and `stage` override the rule's where the dialect changes them. `location` is for what no
    fact holds; else the place is that of the first fact that has one.
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


@dataclass(frozen=True)
class Example:
    """A launch in a few words: flags for `mlm`, overrides for the others; `assume` as on the command line.

    A text of several lines is a file's text: an override list or a YAML.
    """

    dialect: Dialect
    text: str
    assume: str = ""


@dataclass(frozen=True)
class Rule:
    """One thing that must hold. Pure: reads the view, answers, never raises (but `Unknown`)."""

    id: str
    title: str
    severity: Severity
    effect: Effect
    stage: Stage
    why: str
    source: tuple[Source, ...]
    applies: Callable[[View], bool]
    check: Callable[[View], Problem | None]
    good: Example
    bad: Example
    last: bool = False
    """Judges the check itself (assumptions, accepted findings) and not the launch: runs after all others."""


def rule(
    id: str,
    *,
    severity: Severity,
    effect: Effect,
    stage: Stage,
    source: tuple[Source, ...],
    applies: Callable[[View], bool],
    good: Example,
    bad: Example,
    last: bool = False,
) -> Callable[[Callable[[View], Problem | None]], Rule]:
    """A function as a rule: its docstring's first line is the title, the rest says why."""

    def make(check: Callable[[View], Problem | None]) -> Rule:
        title, _, why = (check.__doc__ or "").partition("\n")
        return Rule(
            id,
            title.strip().removesuffix("."),
            severity,
            effect,
            stage,
            " ".join(why.split()),
            source,
            applies,
            check,
            good,
            bad,
            last,
        )

    return make


_NEVER_NONE = frozenset(
    (
        "tp",
        "pp",
        "cp",
        "ep",
        "etp",
        "gtp",
        "dp",
        "world_size",
        "nodes",
        "gpus_per_node",
        "nvlink_domain",
        "ntasks_per_node",
        "num_layers",
        "hidden_size",
        "heads",
        "kv_heads",
        "num_distributed_optimizer_instances",
    )
)
"""Sizes for which upstream has no None: a written null decides nothing, so it counts as unknown."""


class View:
    """What rules read: `v.cp` is the fact's value; an unknown one raises `Unknown` and so ends the rule."""

    def __init__(self, launch: Launch, unused: tuple[Acceptance, ...] = ()) -> None:
        self.launch = launch
        self.unused = unused
        """Accepted findings that no rule had; only for rules that run last."""
        self.dialect: Dialect = launch.dialect
        self._facts = launch.facts

    def __getattr__(self, name: str) -> Any:
        fact = self._facts.get(name)
        if fact is None or (fact.value is None and name in _NEVER_NONE):
            raise Unknown(name)
        return fact.value

    def __getitem__(self, name: str) -> Any:
        """The same for names that are no Python names: `v["env.NVTE_FUSED_ATTN"]`."""
        return self.__getattr__(name)

    def fact(self, name: str) -> Fact | None:
        return self._facts.get(name)

    def known(self, *names: str) -> bool:
        for name in names:  # noqa: SIM110 - half the time of a generator, on the path of every rule
            if self.get(name, Unknown) is Unknown:
                return False
        return True

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or `default` where it is unknown. For `applies`, and for facts that only sharpen a message."""
        fact = self._facts.get(name)
        if fact is None or (fact.value is None and name in _NEVER_NONE):
            return default
        return fact.value

    def version(self, name: str) -> Version:
        """A version fact, parsed. A text that is no version is unknown."""
        value = self.__getattr__(name)
        try:
            return _version(value)
        except (InvalidVersion, TypeError):
            raise Unknown(name) from None

    def at_least(self, name: str, minimum: str) -> bool:
        """Whether the version is `minimum` or newer, by release number: 0.16.0rc0 counts as 0.16.0."""
        return _release(self.version(name)) >= _release(_version(minimum))

    @property
    def comm_types(self) -> tuple[str, ...]:
        """The distinct communication types over all layers; an unset one is upstream's p2p."""
        value = self.cp_comm_type
        items = value if isinstance(value, tuple) else (value,)
        return tuple(dict.fromkeys("p2p" if item is None else str(item) for item in items))

    @property
    def kv_heads_per_rank(self) -> int:
        """KV heads on a TP rank: kv_heads / tp; 1 where there are fewer KV heads than TP ranks (replicated)."""
        if self.get("mla"):
            return int(self.heads) // int(self.tp)  # K is projected up to all heads
        kv_heads, tp = int(self.kv_heads), int(self.tp)
        return kv_heads // tp if kv_heads >= tp else 1

    @property
    def heads_per_rank(self) -> int:
        """Query heads on a TP rank."""
        return int(self.heads) // int(self.tp)


def _release(version: Version) -> tuple[int, int, int]:
    return (version.major, version.minor, version.micro)


_VERSIONS: dict[str, Version] = {}


def _version(text: str) -> Version:
    version = _VERSIONS.get(text)
    if version is None:
        version = _VERSIONS[text] = Version(text)
    return version
