"""What a rule may read: the facts of a launch; reading an unknown one ends the rule."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any

from megatron_hcp.launch.fact import Acceptance, Dialect, Fact, Launch


class Unknown(Exception):
    """A rule requested a fact that the launch doesn't state. The engine turns this into `not_checked`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


_NEVER_NONE = frozenset(
    "tp pp cp ep etp gtp egtp dp world_size nodes gpus_per_node nvlink_domain ntasks_per_node num_layers hidden_size "
    "heads kv_heads num_distributed_optimizer_instances".split()
)
"""Sizes for which upstream has no None: a written null carries no information, so it counts as unknown."""


class View:
    """What rules read: `v.cp` is the fact's value; an unknown one raises `Unknown` and so ends the rule."""

    def __init__(
        self, launch: Launch, unused: tuple[Acceptance, ...] = (), rule_ids: Collection[str] = frozenset()
    ) -> None:
        self.launch = launch
        self.unused = unused
        """Accepted findings that no rule reported; only for rules that run last."""
        self.rule_ids = rule_ids
        """The ids of all rules; only for rules that run last."""
        self.dialect: Dialect = "mlm" if launch.dialect == "slime" else launch.dialect
        """Whose start-up reads the launch: slime and miles run Megatron-LM's own parser and `validate_args`."""
        self._facts = launch.facts
        self.asked: dict[str, None] = {}
        """The names of the facts that were read, in order, whether the launch has them or not."""

    def __getattr__(self, name: str) -> Any:
        self.asked[name] = None
        fact = self._facts.get(name)
        if fact is None or (fact.value is None and name in _NEVER_NONE):
            raise Unknown(name)
        return fact.value

    def __getitem__(self, name: str) -> Any:
        """The same for names that aren't Python identifiers: `v["env.NVTE_FUSED_ATTN"]`."""
        return self.__getattr__(name)

    def fact(self, name: str) -> Fact | None:
        self.asked[name] = None
        return self._facts.get(name)

    def known(self, *names: str) -> bool:
        for name in names:  # noqa: SIM110 - half the time of a generator, on the path of every rule
            if self.get(name, Unknown) is Unknown:
                return False
        return True

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or `default` if it is unknown. For `applies`, and for facts that only sharpen a message."""
        self.asked[name] = None
        fact = self._facts.get(name)
        if fact is None or (fact.value is None and name in _NEVER_NONE):
            return default
        return fact.value

    def release(self, name: str) -> tuple[int, int, int]:
        """The (major, minor, micro) of a version fact. Text that isn't a version counts as unknown."""
        value = self.__getattr__(name)
        release = _release_of(value) if isinstance(value, str) else None
        if release is None:
            raise Unknown(name)
        return release

    def at_least(self, name: str, minimum: str) -> bool:
        """Whether the version is `minimum` or newer, by PEP 440: 0.16.0rc0 and 0.16.0.dev0 are older than 0.16.0.

        A development build of 2.20 branched off before 2.19 was finished, so a minimum between the two is unknown.
        """
        wanted = _release_of(minimum)
        assert wanted is not None, f"{minimum} is not a version"
        release = self.release(name)
        value = self.__getattr__(name)
        if value[-1].isdecimal() and "+" not in value and all(map(str.isdecimal, value.split("."))):
            return release >= wanted
        from packaging.version import Version  # imported here, because most launches state plain numbers, or none

        version = Version(value)
        if version.is_devrelease and (release[0], release[1] - 1, 0) <= wanted < release:
            raise Unknown(name)
        return version >= Version(minimum)


@lru_cache
def _release_of(text: str) -> tuple[int, int, int] | None:
    """The first three numbers of a version; None if the text isn't a version.

    >>> _release_of("2.14"), _release_of("0.16.0rc0+cu124"), _release_of("main")
    ((2, 14, 0), (0, 16, 0), None)
    """
    parts = text.split(".")
    try:
        if all(part.isascii() and part.isdecimal() for part in parts):
            major, minor, micro, *_ = (*map(int, parts), 0, 0)
            return major, minor, micro
        from packaging.version import Version  # imported here, because most launches state plain numbers, or none

        version = Version(text)
    except ValueError:
        return None
    return version.major, version.minor, version.micro
