"""The table of all facts, and which keys set each in each dialect."""

from __future__ import annotations

from functools import cache
from typing import Any

from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.facts.spec import FactSpec
from megatron_hcp.launch.facts.topics import TOPICS, Key, by_key

SPECS: tuple[FactSpec, ...] = (*TOPICS, *(spec for framework in FRAMEWORKS.values() for spec in framework.rows))
FACTS: dict[str, FactSpec] = {spec.name: spec for spec in SPECS}
_INDEXES: dict[tuple[str, str], dict[str, Key]] = {}
SHOWN_ROLE = {"verl": "actor_rollout_ref.actor"}
"""Of which of a dialect's models the keys are shown, where it has several."""


def keys_of(spec: FactSpec, dialect: str, role: str = "") -> tuple[str, ...]:
    """The upstream keys of a fact in the dialect, the preferred one first.

    >>> keys_of(FACTS["cp"], "verl", "actor_rollout_ref.actor")[0]
    'actor_rollout_ref.actor.megatron.context_parallel_size'
    """
    return FRAMEWORKS[dialect].keys_of(spec, role)


def index_of(dialect: str, role: str = "") -> dict[str, Key]:
    """From upstream key to fact name, for one dialect (and, in verl, one role)."""
    dialect = key_dialect(dialect)
    index = _INDEXES.get((dialect, role))
    if index is None:
        framework = FRAMEWORKS[dialect]
        index = _INDEXES[dialect, role] = by_key(SPECS, framework.keys_of, role, framework.negates)
    return index


@cache
def types_of(dialect: str) -> dict[str, str]:
    """The type of the fact that each key sets."""
    return {key: FACTS[entry.fact].type for key, entry in index_of(dialect).items()}


def default_of(spec: FactSpec, dialect: str) -> Any:
    """Upstream's default in that dialect, or `UNKNOWN` if it is set elsewhere."""
    framework = FRAMEWORKS[dialect]
    if spec.name in framework.defaults:
        return framework.defaults[spec.name]
    of_model = framework.model_decides and any(key.startswith("model.") for key in spec.bridge)
    return spec.defaults.get("verl" if of_model else key_dialect(dialect), spec.default)


def key_dialect(dialect: str) -> str:
    """The dialect whose keys a launch uses, and whose start-up reads them: its own, or another framework's."""
    return FRAMEWORKS[dialect].base or dialect
