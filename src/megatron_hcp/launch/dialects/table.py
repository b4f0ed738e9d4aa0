"""The table of fact names: what each means, and which upstream key sets it in each dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from megatron_hcp.launch.dialects import slime
from megatron_hcp.launch.dialects.ms_swift import keys as ms_swift
from megatron_hcp.launch.dialects.nemo_rl import keys as nemo_rl
from megatron_hcp.launch.dialects.verl.keys import VERL_FACTS
from megatron_hcp.launch.facts.batches import BATCH_FACTS
from megatron_hcp.launch.facts.data import DATA_FACTS
from megatron_hcp.launch.facts.groups import GROUP_FACTS
from megatron_hcp.launch.facts.loss import LOSS_FACTS
from megatron_hcp.launch.facts.model import MODEL_FACTS
from megatron_hcp.launch.facts.parallel import PARALLEL_FACTS
from megatron_hcp.launch.facts.recomputation import RECOMPUTATION_FACTS
from megatron_hcp.launch.facts.router import ROUTER_FACTS
from megatron_hcp.launch.facts.spec import FactSpec
from megatron_hcp.launch.facts.stages import STAGE_FACTS


class Key(NamedTuple):
    """How one dialect's key maps to a fact; `negated` for flags such as `--no-rope-fusion`."""

    fact: str
    negated: bool = False


MODEL_NAMES = frozenset(spec.name for spec in (*MODEL_FACTS, *ROUTER_FACTS, *RECOMPUTATION_FACTS))
"""The facts of the model, its attention and its precision."""
SPECS: tuple[FactSpec, ...] = (
    *PARALLEL_FACTS,
    *GROUP_FACTS,
    *STAGE_FACTS,
    *MODEL_FACTS,
    *ROUTER_FACTS,
    *RECOMPUTATION_FACTS,
    *DATA_FACTS,
    *LOSS_FACTS,
    *BATCH_FACTS,
    *VERL_FACTS,
    *nemo_rl.NEMO_RL_FACTS,
    *ms_swift.MS_SWIFT_FACTS,
    *slime.SLIME_FACTS,
)
FACTS: dict[str, FactSpec] = {spec.name: spec for spec in SPECS}


def keys_of(spec: FactSpec, dialect: str, role: str = "") -> tuple[str, ...]:
    """The upstream keys of a fact in the dialect, the preferred one first.

    >>> keys_of(FACTS["cp"], "verl", "actor_rollout_ref.actor")[0]
    'actor_rollout_ref.actor.megatron.context_parallel_size'
    """
    dialect = key_dialect(dialect)
    if dialect == "mlm":
        return spec.mlm
    if dialect == "nemo-rl":
        return nemo_rl.keys_of(spec)
    if dialect == "ms-swift":
        return ms_swift.keys_of(spec)
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
    # The fine-tuning trainer: the engine's section is at the top level, and torchrun sets the ranks, not `trainer.`.
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
    """Upstream's default in that dialect, or `UNKNOWN` if it is set elsewhere."""
    own = _OWN_DEFAULTS.get(dialect, {})
    if spec.name in own:
        return own[spec.name]
    dialect = key_dialect(dialect)
    if dialect in ("nemo-rl", "ms-swift") and any(key.startswith("model.") for key in spec.bridge):
        dialect = "verl"  # a field of the model: its own config sets it, there as here
    return spec.defaults.get(dialect, spec.default)


_OWN_DEFAULTS: dict[str, Mapping[str, Any]] = {
    "nemo-rl": nemo_rl.DEFAULTS,
    "ms-swift": ms_swift.DEFAULTS,
    "slime": slime.DEFAULTS,
}
_KEYS_OF = {"bridge-provider": "bridge", "slime": "mlm"}


def key_dialect(dialect: str) -> str:
    """The dialect whose keys a launch uses: a bare model provider uses Bridge's, slime Megatron-LM's."""
    return _KEYS_OF.get(dialect, dialect)
