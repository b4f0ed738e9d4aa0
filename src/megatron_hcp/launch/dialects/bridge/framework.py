"""Megatron-Bridge: a ConfigContainer, or overrides of a recipe."""

from __future__ import annotations

from megatron_hcp.launch.dialects.framework import Framework
from megatron_hcp.launch.facts.known_keys import section
from megatron_hcp.launch.facts.spec import FactSpec


def _keys_of(spec: FactSpec, role: str) -> tuple[str, ...]:
    """`role`: where model configs keep megatron-core's fields one level down, that level: `model.transformer`."""
    nested = [f"{role}.{key[6:]}" for key in spec.bridge if role and key.startswith("model.")]
    return (*nested, *spec.bridge)


def _known(key: str) -> tuple[frozenset[str], str]:
    return section("bridge"), key


BRIDGE = Framework(
    name="bridge",
    keys_of=_keys_of,
    known=_known,
    has_recipes=True,
)
BRIDGE_PROVIDER = BRIDGE._replace(name="bridge-provider", base="bridge")
"""A model provider alone, as custom training programs take it."""
