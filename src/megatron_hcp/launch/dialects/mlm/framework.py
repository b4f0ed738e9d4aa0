"""Megatron-LM: its command line, and the arguments in its functional tests' YAML."""

from __future__ import annotations

from functools import cache

from megatron_hcp.launch.dialects.framework import Framework, with_dashes
from megatron_hcp.launch.facts.known_keys import section
from megatron_hcp.launch.facts.known_options import all_options
from megatron_hcp.launch.facts.spec import FactSpec


def _keys_of(spec: FactSpec, role: str) -> tuple[str, ...]:
    return spec.mlm


@cache
def _options() -> frozenset[str]:
    """The options of Megatron-LM's own parser, and those of its other programs."""
    return section("mlm") | all_options()


def _known(key: str) -> tuple[frozenset[str], str]:
    return _options(), key


MLM = Framework(
    name="mlm",
    keys_of=_keys_of,
    known=_known,
    is_command_line=True,
    negates=True,
    written=with_dashes,
)
