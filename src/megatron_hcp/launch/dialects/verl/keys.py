"""verl's keys: the settings that only it has, and where each role of a launch has its own."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

from megatron_hcp.launch.dialects.framework import SINGLE_WORDS, is_declared
from megatron_hcp.launch.facts.known_keys import section
from megatron_hcp.launch.facts.spec import FactSpec, Type
from megatron_hcp.launch.facts.topics import TOPICS, Key, by_key

_ROLLOUT, _REF = "actor_rollout_ref.rollout", "actor_rollout_ref.ref"


def _size(name: str, doc: str, key: str) -> FactSpec:
    return FactSpec(name, "size", f"verl: {doc}; null = not stated", verl=(key,), defaults={"verl": None})


def _following(name: str, type: Type, key: str) -> FactSpec:
    doc = "verl: as the actor's key, for a pass that computes log-probabilities; null = the actor's"
    return FactSpec(name, type, doc, verl=(key,), defaults={"verl": None})


ROWS: tuple[FactSpec, ...] = (
    FactSpec(
        "train_batch_size", "int", "verl: prompts per step", verl=("data.train_batch_size",), defaults={"verl": 1024}
    ),
    FactSpec("rollouts", "size", "verl: answers per prompt", verl=(f"{_ROLLOUT}.n",), defaults={"verl": 1}),
    FactSpec(
        "vanilla_mbridge",
        "bool",
        "verl: the legacy mbridge builds the model; null = the release's default",
        verl=("@.megatron.vanilla_mbridge",),
        defaults={"verl": None},
    ),
    FactSpec(
        "rope_scaling_override",
        "str",
        "verl: a RoPE scaling that the launch writes over the model's config.json; null = none",
        verl=tuple(
            f"@model.override_config.{section}rope_scaling.{name}"
            for section in ("", "model_config.")
            for name in ("type", "rope_type")
        ),
        defaults={"verl": None},
    ),
    FactSpec(
        "mtp_enable",
        "bool",
        "verl: the model's layers that predict further tokens are used",
        verl=("@model.mtp.enable",),
        defaults={"verl": False},
    ),
    _size("ppo_micro_batch_size", "sequences per forward pass over all ranks (old)", "@.ppo_micro_batch_size"),
    _size(
        "rollout_log_prob_micro_batch_size_per_gpu",
        "sequences per forward pass for the old log-probabilities",
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    ),
    _size(
        "rollout_log_prob_micro_batch_size", "the same over all ranks (old)", f"{_ROLLOUT}.log_prob_micro_batch_size"
    ),
    _size(
        "log_prob_micro_batch_size_per_gpu",
        "sequences per forward pass of the reference model",
        f"{_REF}.log_prob_micro_batch_size_per_gpu",
    ),
    _size("log_prob_micro_batch_size", "the same over all ranks (old)", f"{_REF}.log_prob_micro_batch_size"),
    _following("rollout_log_prob_use_dynamic_bsz", "bool", f"{_ROLLOUT}.log_prob_use_dynamic_bsz"),
    _following("rollout_log_prob_max_token_len_per_gpu", "int", f"{_ROLLOUT}.log_prob_max_token_len_per_gpu"),
    _following("log_prob_use_dynamic_bsz", "bool", f"{_REF}.log_prob_use_dynamic_bsz"),
    _following("log_prob_max_token_len_per_gpu", "int", f"{_REF}.log_prob_max_token_len_per_gpu"),
    FactSpec(
        "ppo_infer_max_token_len_per_gpu",
        "int",
        "verl >= 0.8: tokens per GPU in a micro-batch of the critic's value pass",
        verl=("critic.ppo_infer_max_token_len_per_gpu",),
        defaults={"verl": 32768},
    ),
    FactSpec(
        "bypass_mode",
        "bool",
        "verl: the rollout engine's log-probabilities are the old ones",
        verl=("algorithm.rollout_correction.bypass_mode",),
        defaults={"verl": False},
    ),
)
_MODEL_OF_ROLE = {"critic": "critic.model", "engine": "model"}
_OPEN_SECTIONS = {
    "override_transformer_config": "transformer",
    "override_mcore_model_config": "transformer",
    "override_ddp_config": "ddp",
    "override_optimizer_config": "optimizer",
}
"""What is below these is a field of the named class."""

_SECTIONS = frozenset(
    "actor_rollout_ref custom_reward_function model_engine global_profiler ray_init ray_kwargs async_training "
    "transfer_queue".split()
)
_SHARED_SECTIONS = frozenset(
    "algorithm critic data distillation engine model optim reward reward_model rollout trainer".split()
)
_OWN_KEYS = (
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
_TOGETHER = (
    "engine",
    "model.path",
    "optim.lr",
    "trainer.project_name",
    "data.max_length",
    "data.train_batch_size",
    "data.train_max_samples",
)
"""Keys of verl's fine-tuning trainer; a single one doesn't identify it."""
SECTIONS = _SECTIONS | _SHARED_SECTIONS
_ROLES = ("actor_rollout_ref.actor", "engine", "critic")


def keys_of(spec: FactSpec, role: str) -> tuple[str, ...]:
    """The keys of a fact for the model in that role."""
    return tuple(filter(None, (_key(key, role) for key in spec.verl)))


def _key(key: str, role: str) -> str | None:
    if key.startswith("@model."):
        return _MODEL_OF_ROLE.get(role, "actor_rollout_ref.model") + key[6:]
    if role != "engine":
        return key.replace("@", role)
    # The fine-tuning trainer: the engine's section is at the top level, and torchrun sets the ranks, not `trainer.`.
    if key.startswith(("@.", "trainer.")):
        return key.replace("@.megatron", "engine") if key.startswith("@.megatron.") else None
    return key


@cache
def index(role: str) -> dict[str, Key]:
    """The facts by the keys of a role."""
    return by_key((*TOPICS, *ROWS), keys_of, role)


def default(name: str) -> Any:
    """verl's default of a fact that one of its keys sets."""
    spec = next(spec for spec in (*TOPICS, *ROWS) if spec.name == name)
    return spec.defaults.get("verl", spec.default)


def known(key: str) -> tuple[frozenset[str], str]:
    """(the known names, the part of the key that is one of them): in verl's override sections, a field of a class."""
    for name, of_class in _OPEN_SECTIONS.items():
        head, found, field = key.partition(f".{name}.")
        if found and head:
            return section(of_class), field
    return section("verl"), key


def knows(key: str) -> bool:
    """Whether some version of verl declares the key."""
    return any(key in index(role) for role in _ROLES) or is_declared(known, key)


def owns(keys: Collection[str]) -> bool:
    """Whether keys are verl's."""
    roots = {key.partition(".")[0] for key in keys if "." in key or key in SINGLE_WORDS}
    if roots & _SECTIONS:
        return True
    together = {name for name in _TOGETHER for key in keys if key.startswith(name)}
    if len(together) < 2 and not any(key.startswith(_OWN_KEYS) for key in keys):
        return False
    known = sum(knows(key) for key in keys)  # other frameworks have data.max_prompt_length as well
    return 2 * known >= len(keys)
