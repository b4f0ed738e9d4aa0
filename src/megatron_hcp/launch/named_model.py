"""The sizes of a public model, which a launch tells by naming the model."""

from __future__ import annotations

from collections.abc import Iterable

from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.fact import Fact, Reading
from megatron_hcp.launch.facts.topics import TOPICS

_OVERRIDES = (".hf_config_overrides", ".override_config", ".hf_config_path")
"""NeMo-RL's and verl's sections that change the model's config.json, and verl's key for another one."""
_NO_FACTS = frozenset(("mtp_num_layers",))
"""Fields that the framework sets, whatever the model has."""


def facts_of_name(name: Fact, reading: Reading) -> dict[str, Fact]:
    """The facts of a model that the launch names: a public one, or one of Bridge's recipes if its recipe is unknown."""
    if FRAMEWORKS[reading.dialect].model_decides:
        return _facts_of_model(name, reading)
    if FRAMEWORKS[reading.dialect].has_recipes and not reading.complete:
        from megatron_hcp.launch.recipes.models import facts_of_recipes

        return facts_of_recipes(name)
    return {}


def _facts_of_model(name: Fact, reading: Reading) -> dict[str, Fact]:
    """The facts (origin `model-name`) of the model that a launch names, each placed where the name stands.

    Nothing where the name is not that of a known model (at any stage of training, in any precision), or where the
    launch changes the model's sizes.
    """
    from megatron_hcp.launch.facts.known_models import FOR_PLANS, fields_of

    fields = fields_of(name.value) if "/" in str(name.value) else {}
    if not fields or _changes_sizes(reading):
        return {}
    if fields.get("multi_latent_attention"):
        fields = {"num_query_groups": None, **fields}  # latent attention has no groups: each head has its own K and V
    of_field = {key: spec.name for spec in TOPICS for key in spec.bridge}
    return {
        of_field[f"model.{field}"]: Fact(value, "model-name", name.location, name.key)
        for field, value in fields.items()
        if field not in _NO_FACTS | FOR_PLANS
    }


def _changes_sizes(reading: Reading) -> bool:
    """Whether the launch overrides a field of the model's config.json that may be a size, or names another one."""
    keys = [key for key in _written(reading) if any(section in key for section in _OVERRIDES)]
    if not keys:
        return False
    from megatron_hcp.launch.hf import SIZE_FIELDS

    return any(key.endswith(_OVERRIDES) or key.rpartition(".")[2] in SIZE_FIELDS for key in keys)


def _written(reading: Reading) -> Iterable[str]:
    yield from (setting.key for setting in reading.settings if setting.value is not None)
    yield from reading.unknown
