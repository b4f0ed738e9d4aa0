"""The sizes of a model that a launch of Megatron-Bridge names without naming one of its recipes."""

from __future__ import annotations

from megatron_hcp.launch.dialects.bridge.named import NAMES_MODEL
from megatron_hcp.launch.dialects.table import FACTS, default_of, index_of, keys_of
from megatron_hcp.launch.fact import Fact
from megatron_hcp.launch.facts.spec import UNKNOWN
from megatron_hcp.launch.recipes.table import of_model

_OTHER = ("attention_variant", "position_embedding_type", "softmax_type", "window_attn_skip_freq", "window_size")


def facts_of_recipes(name: Fact) -> dict[str, Fact]:
    """The facts (origin `model-name`) in which all recipes of a model agree, in every release; placed as the name.

    Nothing where the name doesn't come from an option that takes a model of Bridge's recipes.
    """
    if (name.key or "").lstrip("-") not in NAMES_MODEL:
        return {}
    recipe = of_model(str(name.value))
    if recipe is None:
        return {}
    from megatron_hcp.launch.hf import SIZES

    values = {setting.key: setting.value for setting in recipe.settings}
    index = index_of("bridge")
    known = {index[key].fact if key in index else key: value for key, value in values.items()}  # "vision" has no key
    sizes = SIZES.union(_OTHER)
    for fact in sizes - known.keys():
        keys = keys_of(FACTS[fact], "bridge") if fact in FACTS else ()
        default = default_of(FACTS[fact], "bridge") if keys else UNKNOWN
        if default is not UNKNOWN and recipe.unknown.keys().isdisjoint(keys):
            known[fact] = default
    return {fact: Fact(value, "model-name", name.location, name.key) for fact, value in known.items() if fact in sizes}
