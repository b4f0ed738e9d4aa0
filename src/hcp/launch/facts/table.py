"""The one table of fact names: what each means, and which upstream key holds it in each dialect."""

from __future__ import annotations

from typing import Any, NamedTuple

from hcp.launch.facts.data import DATA_FACTS
from hcp.launch.facts.model import MODEL_FACTS
from hcp.launch.facts.parallel import PARALLEL_FACTS
from hcp.launch.facts.row import FactSpec


class Key(NamedTuple):
    """How one dialect's key maps to a fact; `negated` for flags such as `--no-rope-fusion`."""

    fact: str
    negated: bool = False


FACTS: dict[str, FactSpec] = {row.name: row for row in (*PARALLEL_FACTS, *MODEL_FACTS, *DATA_FACTS)}


def keys_of(row: FactSpec, dialect: str, role: str = "") -> tuple[str, ...]:
    """The upstream keys of a fact in the dialect, the one to write first.

    >>> keys_of(FACTS["cp"], "verl", "actor_rollout_ref.actor")[0]
    'actor_rollout_ref.actor.megatron.context_parallel_size'
    """
    if dialect == "mlm":
        return row.mlm
    if dialect == "verl":
        return tuple(filter(None, (_verl_key(key, role) for key in row.verl)))
    if role:  # Bridge's model configs that keep megatron-core's fields one level down: model.transformer.*
        nested = [f"{role}.{key[6:]}" for key in row.bridge if key.startswith("model.")]
        return (*nested, *row.bridge)
    return row.bridge


_MODEL_OF_ROLE = {"critic": "critic.model", "engine": "model"}


def _verl_key(key: str, role: str) -> str | None:
    if key.startswith("@model."):
        return _MODEL_OF_ROLE.get(role, "actor_rollout_ref.model") + key[6:]
    if role != "engine":
        return key.replace("@", role)
    # The fine-tuning trainer: the engine's section is at the top, and torchrun decides the ranks, not `trainer.`.
    if key.startswith(("@.", "trainer.")):
        return key.replace("@.megatron", "engine") if key.startswith("@.megatron.") else None
    return key


_INDEXES: dict[tuple[str, str], dict[str, Key]] = {}


def index_of(dialect: str, role: str = "") -> dict[str, Key]:
    """From upstream key to fact name, for one dialect (and, in verl, one role)."""
    family = "bridge" if dialect == "bridge-provider" else dialect
    index = _INDEXES.get((family, role))
    if index is None:
        index = {key: Key(row.name) for row in FACTS.values() for key in keys_of(row, dialect, role)}
        if dialect == "mlm":
            index |= {key: Key(row.name, True) for row in FACTS.values() for key in row.mlm_not}
        _INDEXES[family, role] = index
    return index


def default_of(row: FactSpec, dialect: str) -> Any:
    """Upstream's default in that dialect, or `UNKNOWN` where it is decided elsewhere."""
    return row.defaults.get("bridge" if dialect == "bridge-provider" else dialect, row.default)
