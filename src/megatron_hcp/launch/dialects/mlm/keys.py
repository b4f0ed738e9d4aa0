"""Megatron-LM's options."""

from __future__ import annotations

from functools import cache

from megatron_hcp.launch.facts.known_keys import section
from megatron_hcp.launch.facts.known_options import all_options
from megatron_hcp.launch.facts.spec import FactSpec


def keys_of(spec: FactSpec, role: str) -> tuple[str, ...]:
    """The options of a fact, underscores for dashes, the preferred one first."""
    return spec.mlm


@cache
def _options() -> frozenset[str]:
    """The options of Megatron-LM's own parser, and those of its other programs."""
    return section("mlm") | all_options()


def known(key: str) -> tuple[frozenset[str], str]:
    """(all options, the key)."""
    return _options(), key
