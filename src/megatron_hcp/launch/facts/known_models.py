"""The sizes of a public model, which a launch tells by naming the model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from megatron_hcp.launch.fact import Fact, Reading
from megatron_hcp.launch.facts.topics import TOPICS

_FILE = os.path.join(os.path.dirname(__file__), "known_models.txt")
_OVERRIDES = (".hf_config_overrides", ".override_config", ".hf_config_path")
"""NeMo-RL's and verl's sections that change the model's config.json, and verl's key for another one."""
_BY_FRAMEWORK = frozenset(("mtp_num_layers",))
"""Fields that the framework sets, whatever the model has."""


@cache
def fields_of(model: str) -> Mapping[str, Any]:
    """The fields of megatron-core's configuration that a model of the Hugging Face Hub has; {} for an unknown name."""
    with open(_FILE, encoding="utf-8") as file:
        line = next((line for line in file if line.partition(" ")[0] == model), "")
    _, _, other = line.rstrip("\n").partition(" =")
    if other:
        return fields_of(other)
    return {name: json.loads(value) for name, _, value in (field.partition("=") for field in line.split()[2:])}


def facts_of(name: Fact | None, reading: Reading) -> dict[str, Fact]:
    """The facts (origin `model-name`) of the model that a launch names, each placed where the name stands.

    Nothing where the name is not exactly that of a known model, or where the launch changes the model's sizes.
    """
    fields = fields_of(name.value) if name is not None and "/" in str(name.value) else {}
    if name is None or not fields or _changes_sizes(reading):
        return {}
    of_field = {key: spec.name for spec in TOPICS for key in spec.bridge}
    return {
        of_field[f"model.{field}"]: Fact(value, "model-name", name.location, name.key)
        for field, value in fields.items()
        if field not in _BY_FRAMEWORK
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
