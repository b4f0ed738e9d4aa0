"""The one table of fact names: what each means, and which upstream key holds it in each dialect."""

from __future__ import annotations

from typing import Any, NamedTuple

from hcp.launch.facts.batches import BATCH_FACTS
from hcp.launch.facts.data import DATA_FACTS
from hcp.launch.facts.groups import GROUP_FACTS
from hcp.launch.facts.model import MODEL_FACTS
from hcp.launch.facts.parallel import PARALLEL_FACTS
from hcp.launch.facts.spec import FactSpec
from hcp.launch.facts.stages import STAGE_FACTS
from hcp.launch.facts.verl import VERL_FACTS


class Key(NamedTuple):
    """How one dialect's key maps to a fact; `negated` for flags such as `--no-rope-fusion`."""

    fact: str
    negated: bool = False


MODEL_NAMES = frozenset(spec.name for spec in MODEL_FACTS)
"""The facts of the model, its attention and its precision."""
FACTS: dict[str, FactSpec] = {
    spec.name: spec
    for spec in (*PARALLEL_FACTS, *GROUP_FACTS, *STAGE_FACTS, *MODEL_FACTS, *DATA_FACTS, *BATCH_FACTS, *VERL_FACTS)
}


def keys_of(spec: FactSpec, dialect: str, role: str = "") -> tuple[str, ...]:
    """The upstream keys of a fact in the dialect, the one to write first.

    >>> keys_of(FACTS["cp"], "verl", "actor_rollout_ref.actor")[0]
    'actor_rollout_ref.actor.megatron.context_parallel_size'
    """
    if dialect == "mlm":
        return spec.mlm
    if dialect == "verl":
        return tuple(filter(None, (_verl_key(key, role) for key in spec.verl)))
    if role:  # Bridge's model configs that keep megatron-core's fields one level down: model.transformer.*
        nested = [f"{role}.{key[6:]}" for key in spec.bridge if key.startswith("model.")]
        return (*nested, *spec.bridge)
    return spec.bridge


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
    dialect = key_dialect(dialect)
    index = _INDEXES.get((dialect, role))
    if index is None:
        index = {key: Key(spec.name) for spec in FACTS.values() for key in keys_of(spec, dialect, role)}
        if dialect == "mlm":
            index |= {key: Key(spec.name, True) for spec in FACTS.values() for key in spec.mlm_not}
        _INDEXES[dialect, role] = index
    return index


def default_of(spec: FactSpec, dialect: str) -> Any:
    """Upstream's default in that dialect, or `UNKNOWN` where it is decided elsewhere."""
    return spec.defaults.get(key_dialect(dialect), spec.default)


def key_dialect(dialect: str) -> str:
    """The dialect whose keys and defaults a launch has: a bare model provider's are those of Bridge."""
    return "bridge" if dialect == "bridge-provider" else dialect
