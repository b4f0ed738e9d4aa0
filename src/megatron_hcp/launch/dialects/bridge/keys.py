"""Megatron-Bridge's keys, and which of them only Bridge has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from megatron_hcp.launch.dialects.framework import SINGLE_WORDS, is_declared
from megatron_hcp.launch.facts.known_keys import section
from megatron_hcp.launch.facts.spec import FactSpec
from megatron_hcp.launch.facts.topics import TOPICS, Key, by_key

RECIPE_PACKAGES = ("megatron.bridge.recipes.", "megatron.bridge.perf_recipes.")
"""Where Megatron-Bridge keeps its recipes."""

SECTIONS = frozenset(
    "model train dataset dist ddp optimizer scheduler logger tokenizer checkpoint rng rerun_state_machine validation "
    "ft straggler nvrx_straggler profiling peft comm_overlap mixed_precision tensor_inspect inprocess_restart env_vars "
    "optimizer_config_override_provider".split()
)
"""The sections of Bridge's ConfigContainer."""
_OWN_SECTIONS = (
    "dist.",
    "ddp.",
    "scheduler.",
    "logger.",
    "checkpoint.",
    "train.",
    "validation.",
    "rerun_state_machine.",
    "ft.",
    "straggler.",
    "nvrx_straggler.",
    "profiling.",
    "comm_overlap.",
    "mixed_precision.",
    "tensor_inspect.",
    "inprocess_restart.",
    "dataset.packed_sequence_specs.",
    "dataset.offline_packing_specs.",
)
"""Sections that only Bridge has, except for the keys in `_SHARED`."""
_SHARED = frozenset(
    "train.micro_batch_size train.global_batch_size checkpoint.async_save checkpoint.save checkpoint.load "
    "model.num_layers model.hidden_size model.ffn_hidden_size model.num_attention_heads model.hidden_dropout "
    "model.attention_dropout model.vocab_size model.window_size model.image_size model.block_size model.chunk_size "
    "model.num_labels model.bos_token_id model.eos_token_id model.patch_dim model.trust_remote_code model.test_mode "
    "model.normalization model.fp16 model.bf16 model.init_method_std model.mode model.seed".split()
)
"""Bridge's keys that other frameworks have under the same name."""
_AROUND = frozenset(("recipe", "run", "defaults", "hydra", "_target_"))
"""Sections that launchers around Bridge add to its own."""

_NESTED = "model.transformer"
"""Where some model configs keep megatron-core's fields."""


def keys_of(spec: FactSpec, role: str) -> tuple[str, ...]:
    """`role`: where model configs keep megatron-core's fields one level down, that level: `model.transformer`."""
    nested = [f"{role}.{key[6:]}" for key in spec.bridge if role and key.startswith("model.")]
    return (*nested, *spec.bridge)


@cache
def _index(role: str) -> dict[str, Key]:
    return by_key(TOPICS, keys_of, role)


def known(key: str) -> tuple[frozenset[str], str]:
    """(the keys of Bridge's sources, the key)."""
    return section("bridge"), key


def knows(key: str) -> bool:
    """Whether some version of Bridge declares the key."""
    return key in _index("") or key in _index(_NESTED) or is_declared(known, key)


def owns(keys: Collection[str]) -> bool:
    """Whether keys are Bridge's. Its own decide; shared ones count only if there is nothing else."""
    ours = [key for key in keys if "." in key or key in SINGLE_WORDS]
    if any(key.startswith(_OWN_SECTIONS) and _is_own(key) for key in ours):
        return True
    known = [key for key in ours if key.partition(".")[0] in SECTIONS and _is_below_known(key)]
    around = [key for key in keys if key.partition(".")[0] in _AROUND or ("." not in key and key in SECTIONS)]
    strange = len(keys) - len(known) - len(around)
    if strange > len(known):
        return False
    return any(key.startswith("model.") and key not in _SHARED for key in known) or bool(known and not strange)


def _is_below_known(key: str) -> bool:
    parent = key.rpartition(".")[0]
    return knows(key) or ("." in parent and knows(parent))


def _is_own(key: str) -> bool:
    return key not in _SHARED and knows(key)


def is_bridge_target(data: Mapping[str, Any]) -> bool:
    """Whether a YAML names a class or a recipe of Megatron-Bridge."""
    sections = [data, *(value for value in data.values() if isinstance(value, Mapping))]
    named = [section.get(key) for section in sections for key in ("_target_", "name")]
    return any(isinstance(name, str) and name.startswith("megatron.bridge.") for name in named)


def names_recipe(data: Mapping[str, Any]) -> bool:
    """Whether a YAML has a `recipe:` block that names a recipe of Megatron-Bridge."""
    recipe = data.get("recipe")
    named = [recipe.get(key) for key in ("_target_", "name")] if isinstance(recipe, Mapping) else []
    return any(isinstance(name, str) and name.startswith(RECIPE_PACKAGES) for name in named)
