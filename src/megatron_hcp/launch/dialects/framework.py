"""What hcp knows of a framework: one `Framework`, which is asked instead of comparing names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from megatron_hcp.launch.fact import Dialect
from megatron_hcp.launch.facts.known_keys import section
from megatron_hcp.launch.facts.spec import FactSpec
from megatron_hcp.launch.facts.topics import KeysOf

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def dotted(key: str) -> str:
    """A key as the launch has it."""
    return key


def with_dashes(key: str) -> str:
    """A key as an option of Megatron-LM's command line."""
    return f"--{key.replace('_', '-')}"


class Framework(NamedTuple):
    """A framework whose launches are read: what its keys are, and what it does with them."""

    name: Dialect
    keys_of: KeysOf
    known: Callable[[str], tuple[frozenset[str], str]]
    """(the keys that its sources declare, the part of the given key that is one of them)"""
    base: Dialect | None = None
    """The framework whose keys it takes, and whose start-up reads them, if that is another one."""
    rows: tuple[FactSpec, ...] = ()
    """The facts that it adds."""
    defaults: Mapping[str, Any] = _NOTHING
    """By fact: its defaults that differ from the table's."""
    is_command_line: bool = False
    """Its launches are command options; others have dotted keys."""
    negates: bool = False
    """It has Megatron-LM's options that switch something off."""
    written: Callable[[str], str] = dotted
    """A key as a launch writes it."""
    model_decides: bool = False
    """The model's own config sets what the framework has no default for."""
    has_recipes: bool = False
    """A recipe sets what a launch omits, unless the launch is a dump of everything."""

    def names(self) -> frozenset[str]:
        """The names of all options in its sources, without the sections that they stand in."""
        if self.negates:
            return self.known("")[0]
        return frozenset({key.rpartition(".")[2] for key in section(self.name)} | section("transformer"))
