"""What a launch leaves to its recipe of how it runs: precision, overlaps, graphs, the optimizer, sizes of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from megatron_hcp.launch.dialects.bridge.named import recipe_of
from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.fact import Launch, Setting
from megatron_hcp.launch.facts.known_models import FOR_PLANS, fields_of
from megatron_hcp.launch.recipes.running import running_of
from megatron_hcp.launch.recipes.table import is_recipe, look_up

_Completed = tuple[dict[str, Any], dict[str, str], tuple[str, ...]]


class WithRecipe(NamedTuple):
    """`settings`: of the recipe first and then the launch's own, so that the last of a key decides. `facts`: by name.
    `unknown`: facts that remain open, and why. `notes`: what was taken for something else, in words."""

    settings: tuple[Setting, ...]
    facts: dict[str, Any]
    unknown: dict[str, str]
    notes: tuple[str, ...] = ()


def said_by(launch: Launch, stated: str | None) -> WithRecipe:
    """The launch with what its recipe sets beside the facts; `stated`: the name that --recipe gives."""
    facts = {name: fact.value for name, fact in launch.facts.items()}
    reading, unknown = launch.reading, dict(launch.unknown)
    if reading.recipe is None:
        return WithRecipe(reading.settings, facts, unknown)
    named, release = recipe_of(reading), launch.facts.get("bridge")
    name = stated or (named.name if named else "")
    of_recipe = [item for item in reading.settings if _is_of(item, reading.recipe.by_key)]
    own = [item for item in reading.settings if not _is_of(item, reading.recipe.by_key)]
    running = running_of(name, None if release is None else str(release.value))
    if any(item.key.startswith("mixed_precision") for item in own):
        running = tuple(item for item in running if not item.key.startswith("mixed_precision."))
        of_recipe = [item for item in of_recipe if not item.key.startswith("mixed_precision")]
    if model := look_up(name, None).model if is_recipe(name) else "":
        facts |= {"model_name": model, **{key: size for key, size in fields_of(model).items() if key in FOR_PLANS}}
    index = index_of("bridge")
    for item in running:
        entry = index.get(item.key)
        if entry is not None and facts.get(entry.fact) is None:
            facts[entry.fact] = item.value
            unknown.pop(entry.fact, None)
    if any(item.key.startswith("mixed_precision.") for item in running) and facts.get("fp8") is None:
        unknown.pop("fp8", None)  # the recipe's precision is known, and it has none
    return WithRecipe((*of_recipe, *running, *own), *_with_sizes(facts, unknown))


def _is_of(item: Setting, recipe: Mapping[str, Setting]) -> bool:
    return item.key in recipe and recipe[item.key].value == item.value and item.location is None


def _with_sizes(facts: dict[str, Any], unknown: dict[str, str]) -> _Completed:
    """Sizes that others tell: layers by a pattern, and an expert's width by that of a shared one."""
    pattern, notes = facts.get("hybrid_pattern"), []
    if not facts.get("num_layers") and isinstance(pattern, str):
        facts["num_layers"] = len(pattern.partition("/")[0].replace("|", ""))
        unknown.pop("num_layers", None)
    shared = facts.get("moe_shared_expert_intermediate_size")
    if facts.get("num_experts") and not facts.get("moe_ffn_hidden_size") and shared:
        facts["moe_ffn_hidden_size"] = shared
        unknown.pop("moe_ffn_hidden_size", None)
        notes.append(f"moe_ffn_hidden_size is {shared}, as the shared expert's: the launch does not say it")
    return facts, unknown, tuple(notes)
