"""Which dialect a set of dotted keys belongs to, and the errors for unsupported ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from megatron_hcp.launch.dialects import foreign
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.table import index_of, key_dialect
from megatron_hcp.launch.fact import Dialect, Setting

WANTED = "wanted a Megatron-Bridge, Megatron-LM or verl launch"
_SLIME = frozenset("actor_num_nodes actor_num_gpus_per_node rollout_batch_size rollout_num_gpus num_rollout".split())
"""Options that slime and miles add to Megatron-LM's."""
_SWIFT = frozenset("tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size".split())
_SWIFT |= frozenset("expert_model_parallel_size global_batch_size mcore_model bridge_backend".split())
"""Arguments that ms-swift has only for `megatron`, not for `swift`."""
_POLICY = (
    "policy.megatron_cfg.",
    "policy.dtensor_cfg.",
    "policy.model_name",
    "policy.train_global_batch_size",
    "policy.max_total_sequence_length",
    "policy.make_sequence_length_divisible_by",
    "policy.sequence_packing.",
    "policy.dynamic_batching.",
)
"""Sections that only NeMo-RL has."""

RECIPE_PACKAGES = ("megatron.bridge.recipes.", "megatron.bridge.perf_recipes.")
"""Where Megatron-Bridge keeps its recipes."""

_SECTIONS = frozenset(
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

_VERL = frozenset(
    "actor_rollout_ref custom_reward_function model_engine global_profiler ray_init ray_kwargs async_training "
    "transfer_queue".split()
)
_VERL_SECTIONS = frozenset(
    "algorithm critic data distillation engine model optim reward reward_model rollout trainer".split()
)
_VERL_KEYS = (
    "engine@",
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
    "data.train_files",
    "data.max_token_len_per_gpu",
    "data.max_prompt_length",
    "data.max_response_length",
    "algorithm.adv_estimator",
    "algorithm.use_kl",
    "engine.context_parallel_size",
    "engine.tensor_model_parallel_size",
    "critic.megatron.",
)
_VERL_TOGETHER = (
    "engine",
    "model.path",
    "optim.lr",
    "trainer.project_name",
    "data.max_length",
    "data.train_batch_size",
    "data.train_max_samples",
)
"""Keys of verl's fine-tuning trainer; a single one doesn't identify it."""
_ALONE = frozenset(("mixed_precision", "model_engine"))
"""Sections that may also be a single word: the name of a recipe or a config group."""


def dialect_of_keys(keys: Collection[str]) -> Dialect | None:
    """`nemo-rl`, `verl` or `bridge`, by the dotted keys; None if they don't tell or are another framework's.

    >>> dialect_of_keys(["model.context_parallel_size"])
    'bridge'
    >>> dialect_of_keys(["model.path", "engine.context_parallel_size"])
    'verl'
    >>> dialect_of_keys(["model.path", "train.epochs"])
    """
    if _is_nemo_rl(keys):
        return "nemo-rl"
    if foreign.of_keys(keys):
        return None
    if _is_verl(keys):
        return "verl"
    return "bridge" if _is_bridge(keys) else None


def dialect_of_options(names: Collection[str]) -> Dialect:
    """The dialect of a command line that has only options; names without leading dashes, underscores for dashes.

    >>> dialect_of_options({"num_layers"}), dialect_of_options({"num_layers", "actor_num_nodes"})
    ('mlm', 'slime')
    """
    return "slime" if _SLIME.intersection(names) else "mlm"


def is_ms_swift(data: Mapping[str, Any]) -> bool:
    """Whether a YAML holds the arguments of ms-swift's `megatron` command."""
    return {"model", "dataset"} <= data.keys() and not isinstance(data["model"], dict) and bool(_SWIFT & data.keys())


def has_known_key(dialect: Dialect, keys: Collection[str]) -> bool:
    """Whether some version of the dialect's framework declares one of the keys."""
    return any(_knows(dialect, key) for key in keys if "." in key or key in _ALONE)


def can_be(dialect: Dialect, keys: Collection[str], *, in_file: bool = False) -> bool:
    """Whether keys can belong to a dialect that the user names.

    They can if they identify it, or if one is a misspelling of its keys; for words, also if all are in its sections. A
    file's section, such as `model`, isn't enough.
    """
    if FRAMEWORKS[dialect].is_command_line or not keys:
        return False
    if dialect == "nemo-rl" or _is_nemo_rl(keys):
        return dialect == "nemo-rl" and _is_nemo_rl(keys)
    if _is_verl(keys) if dialect == "verl" else _is_bridge(keys):
        return True
    sections = _VERL | _VERL_SECTIONS if dialect == "verl" else _SECTIONS
    there = {key.partition(".")[0] for key in keys if "." in key or key not in _ALONE}
    if not there <= sections:
        return False
    if not in_file:
        return True
    from megatron_hcp.launch.dialects.known_keys import near_miss  # imported late: it reads a large file

    return any(near_miss(dialect, key) for key in keys)


def refuse_foreign(keys: Collection[str], target: str) -> None:
    """Raises an `HcpError` that names the framework, if the keys belong to an unsupported one."""
    name = None if _is_nemo_rl(keys) else foreign.of_keys(keys)
    if name is not None:
        raise not_supported(target, name)


def refuse_foreign_mapping(data: Mapping[str, Any], keys: Collection[str], target: str) -> None:
    """The same for a whole YAML or JSON mapping, which may also be a model's config.json or one of hcp's own files."""
    schema = data.get("schema")
    if isinstance(schema, str) and schema.startswith("hcp."):
        raise UnrecognisedError(
            f"{target} is one of hcp's own files ({schema}), not a launch; {WANTED}; give the launch's file"
        )
    if isinstance(data.get("architectures"), list) or {"model_type", "hidden_size"} <= set(data):
        raise UnrecognisedError(f"{target} is a model's config.json, not a launch; {WANTED}; give it with --model")
    name = foreign.of_targets(data) or (None if _is_nemo_rl(keys) else foreign.of_keys(keys))
    if name is not None:
        raise not_supported(target, name)


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


def not_supported(target: str, name: str) -> UnrecognisedError:
    return UnrecognisedError(
        f"{target} looks like {name}, which is not supported; {WANTED}; give the command line or configuration of one "
        f"of these three"
    )


def unknown_dialect(target: str, keys: Iterable[str], forced: Dialect | None = None) -> HcpError:
    """The error for a configuration with none of our keys; names the sections of `keys`, in their order."""
    roots = list(dict.fromkeys(key.partition(".")[0][:40] for key in keys))[:6]
    found = f"it has {', '.join(roots) or 'none'}"
    if forced is not None:
        return HcpError(
            f"{target} has no key of the dialect {forced} ({found}); {WANTED}; "
            "give the launch's own file, or omit --dialect"
        )
    return UnrecognisedError(
        f"{target} has no key of a known dialect ({found}); {WANTED}; "
        "give the launch's own file, or name its dialect with --dialect"
    )


def has_references(settings: Iterable[Setting]) -> bool:
    """Whether a value needs `interpolate.resolve`: `${…}`, or `???` for a value yet to be given."""
    texts = (str(value) if isinstance(value, list) else value for _, value, *_ in settings)
    return any(isinstance(text, str) and ("${" in text or text == "???") for text in texts)


def _is_nemo_rl(keys: Collection[str]) -> bool:
    return any(key.startswith(_POLICY) for key in keys)


def _is_verl(keys: Collection[str]) -> bool:
    roots = {key.partition(".")[0] for key in keys if "." in key or key in _ALONE}
    if roots & _VERL:
        return True
    together = {name for name in _VERL_TOGETHER for key in keys if key.startswith(name)}
    if len(together) < 2 and not any(key.startswith(_VERL_KEYS) for key in keys):
        return False
    known = sum(_knows("verl", key) for key in keys)  # other frameworks have data.max_prompt_length as well
    return 2 * known >= len(keys)


def _is_bridge(keys: Collection[str]) -> bool:
    """Bridge's own keys decide; keys that it shares with others count only if there is nothing else."""
    ours = [key for key in keys if "." in key or key in _ALONE]
    if any(key.startswith(_OWN_SECTIONS) and _is_own(key) for key in ours):
        return True
    known = [key for key in ours if key.partition(".")[0] in _SECTIONS and _is_below_known(key)]
    around = [key for key in keys if key.partition(".")[0] in _AROUND or ("." not in key and key in _SECTIONS)]
    strange = len(keys) - len(known) - len(around)
    if strange > len(known):
        return False
    return any(key.startswith("model.") and key not in _SHARED for key in known) or bool(known and not strange)


def _is_below_known(key: str) -> bool:
    parent = key.rpartition(".")[0]
    return _knows("bridge", key) or ("." in parent and _knows("bridge", parent))


def _is_own(key: str) -> bool:
    return key not in _SHARED and _knows("bridge", key)


def _knows(dialect: Dialect, key: str) -> bool:
    roles = ("", "model.transformer") if key_dialect(dialect) == "bridge" else _ROLES if dialect == "verl" else ("",)
    if any(key in index_of(dialect, role) for role in roles):
        return True
    from megatron_hcp.launch.dialects.known_keys import is_known  # imported late: it reads a large file

    return not key.rpartition(".")[2].startswith("_") and is_known(dialect, key)


_ROLES = ("actor_rollout_ref.actor", "engine", "critic")
