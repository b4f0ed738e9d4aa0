"""Fact names: batch settings that verl checks at start-up."""

from megatron_hcp.launch.facts.spec import FactSpec, Type

_ROLLOUT, _REF = "actor_rollout_ref.rollout", "actor_rollout_ref.ref"


def _size(name: str, doc: str, key: str) -> FactSpec:
    return FactSpec(name, "size", f"verl: {doc}; null = not stated", verl=(key,), defaults={"verl": None})


def _following(name: str, type: Type, key: str) -> FactSpec:
    doc = "verl: as the actor's key, for a pass that computes log-probabilities; null = the actor's"
    return FactSpec(name, type, doc, verl=(key,), defaults={"verl": None})


VERL_FACTS: tuple[FactSpec, ...] = (
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
