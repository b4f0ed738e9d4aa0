"""What upstream's validators make of a launch: which guards refuse it, and which ones hidden settings decide."""

from __future__ import annotations

from typing import Literal

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.validators.trees import name_of

Source = Literal["table", "upstream"]
"""Where the program that judged comes from: the package's tables, or a checkout that the user named."""


class Guard(NamedTuple):
    """One assert or raise of upstream's start-up.

    `own` is the name that its condition has in upstream's words, where these aren't ours. `condition` is what must hold
    for upstream to go on, in the notation of `validators/expression.py`; `message` has at most 80 characters.
    """

    repo: str
    path: str
    function: str
    own: str
    condition: str
    message: str

    @property
    def slug(self) -> str:
        """A stable name: the function and its condition, neither line nor message. Only what is printed is named."""
        return f"{self.function}/{self.own or name_of(self.condition)}"


class Refusal(NamedTuple):
    """A guard that upstream would stop at, and the settings that its condition reads, by upstream's names."""

    guard: Guard
    values: tuple[tuple[str, object], ...]
    """At that point of the program: upstream's own assignments before it are made."""
    sections: tuple[tuple[str, str], ...] = ()
    """Which of the function's objects are sections of the launch's settings: `self` is `actor_rollout_ref.actor`, or
    `self.cfg` is `policy`."""

    def key_of(self, name: str) -> str:
        """The launch's key of what the condition calls by this name; the name itself if it belongs to no section.

        >>> Refusal(Guard(*[""] * 6), (), (("self", "actor.megatron"), ("config", ""))).key_of("self.dtype")
        'actor.megatron.dtype'
        >>> Refusal(Guard(*[""] * 6), (), (("self.cfg", "policy"),)).key_of("self.cfg.precision")
        'policy.precision'
        """
        within = ((f"{head}.", key) for head, key in self.sections)
        keys = (f"{key}.{name.removeprefix(head)}".lstrip(".") for head, key in within if name.startswith(head))
        return next(keys, name)


class Open(NamedTuple):
    """A guard that is not decided, and the launch's settings that decide it and are not known.

    `within` are the same settings, by what isn't known: the guard's own condition, and each one that it stands under.
    """

    guard: Guard
    unknown: tuple[str, ...]
    within: tuple[frozenset[str], ...] = ()


class Judgement(NamedTuple):
    """The outcome of all guards of a program for one launch.

    `evaluated` guards were decided or are open; of `unreadable` ones the condition, or something that decides it, could
    not be read. `release` is the revision as the tables name it ("0.16.1", "main"), or the version that a checkout
    states.
    """

    refusals: tuple[Refusal, ...]
    open: tuple[Open, ...]
    evaluated: int
    unreadable: int
    source: Source
    release: str
    repo: str = "megatron-lm"
    masked: tuple[Guard, ...] = ()
    """Guards that refuse too, behind a refusal of their function that may be why."""
    steps: int = 0
    """How many statements were evaluated."""
    blocked: frozenset[Guard] = frozenset()
    """Of the unreadable guards, those that something else decides which could not be read."""

    @property
    def num_open(self) -> int:
        """How many guards are open; one that judges several models of a launch may be so more than once."""
        return len({one.guard for one in self.open})
