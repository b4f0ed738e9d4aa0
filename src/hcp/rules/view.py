"""What a rule may look at: the facts of a launch, read so that an unknown one ends the rule."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from packaging.version import InvalidVersion, Version

from hcp.launch.fact import Acceptance, Dialect, Fact, Launch


class Unknown(Exception):
    """A rule asked for a fact that the launch does not state. The engine turns it into `not_checked`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


_NEVER_NONE = frozenset(
    "tp pp cp ep etp gtp dp world_size nodes gpus_per_node nvlink_domain ntasks_per_node num_layers hidden_size heads "
    "kv_heads num_distributed_optimizer_instances".split()
)
"""Sizes for which upstream has no None: a written null decides nothing, so it counts as unknown."""


class View:
    """What rules read: `v.cp` is the fact's value; an unknown one raises `Unknown` and so ends the rule."""

    def __init__(
        self, launch: Launch, unused: tuple[Acceptance, ...] = (), rule_ids: Collection[str] = frozenset()
    ) -> None:
        self.launch = launch
        self.unused = unused
        """Accepted findings that no rule had; only for rules that run last, as `rule_ids`, which are all there are."""
        self.rule_ids = rule_ids
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


def _release(version: Version) -> tuple[int, int, int]:
    return (version.major, version.minor, version.micro)


_VERSIONS: dict[str, Version] = {}


def _version(text: str) -> Version:
    version = _VERSIONS.get(text)
    if version is None:
        version = _VERSIONS[text] = Version(text)
    return version
