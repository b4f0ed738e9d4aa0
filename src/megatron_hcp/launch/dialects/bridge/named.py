"""Which recipe a launch names: in a YAML, with a launcher's option, or with the options that make up its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.dialects.bridge.keys import RECIPE_PACKAGES
from megatron_hcp.launch.fact import Reading, Setting

_YAML_KEYS = ("recipe._target_", "recipe.name", "_target_")
_DEFAULTS = {"task": "pretrain", "compute_dtype": "bf16", "config_variant": ""}
_NO_VARIANT = ("", "v1", "v2")
_ALIASES = {
    "model_recipe_name": ("mr",),
    "task": (),
    "num_gpus": ("ng",),
    "gpu": ("g",),
    "compute_dtype": ("c",),
    "config_variant": ("cv",),
}
"""Options of Bridge's scripts/performance, and their short forms."""
NAMES_MODEL = ("model_recipe_name", "mr")
"""Those that name the model, as its recipes' names begin."""


class Named(NamedTuple):
    """A recipe's name and arguments. `synchronizes`: the launcher copies lengths from the dataset."""

    name: str
    arguments: Mapping[str, Any] = MappingProxyType({})
    synchronizes: bool = False


def recipe_of(reading: Reading) -> Named | None:
    """The recipe that a launch names; None if it names none."""
    written = {setting.key: setting.value for setting in reading.settings}
    for key in _YAML_KEYS:
        target = written.get(key)
        if isinstance(target, str) and target.startswith(RECIPE_PACKAGES):
            given = {name.removeprefix("recipe."): written[name] for name in written if name.startswith("recipe.")}
            arguments = {name: value for name, value in given.items() if name not in ("_target_", "name")}
            return Named(target.rpartition(".")[2], arguments)
    named = reading.facts.get("recipe")
    if named is None or not isinstance(named.value, str):
        return None
    return Named(named.value, synchronizes=True)


def recipe_of_options(settings: Sequence[Setting]) -> str | None:
    """The recipe that a launcher's options name: `--recipe NAME`, or those of scripts/performance (Bridge >= 0.6)."""
    given = {setting.key: setting.value[0] for setting in settings if len(setting.value) == 1}
    if "recipe" in given:
        return str(given["recipe"]).rpartition(".")[2]
    values = {name: _first(given, name, *short) or _DEFAULTS.get(name) for name, short in _ALIASES.items()}
    model, task, gpus, gpu, precision, variant = values.values()
    if model is not None and any(setting.key == "use_recipes" for setting in settings):
        return f"{model}_{task}_config"
    if model is None or task is None or gpus is None or gpu is None or precision is None or variant is None:
        return None
    more = "" if variant.lower() in _NO_VARIANT else f"_{variant.lower()}"
    return f"{model}_{task}_{gpus}gpu_{gpu.lower()}_{precision.lower().replace('_', '')}{more}_config"


def _first(given: Mapping[str, str], *names: str) -> str | None:
    return next((given[name] for name in names if name in given), None)
