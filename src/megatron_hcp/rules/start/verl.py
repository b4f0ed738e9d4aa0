"""A rule for each of verl's files that refuse launches at start-up."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example
from megatron_hcp.rules.start.row import StartRow, rule_of
from megatron_hcp.rules.upstream import (
    VERL_ACTOR_CONFIG,
    VERL_CONFIG,
    VERL_CRITIC_CONFIG,
    VERL_ENGINE_CONFIG,
    VERL_OPTIMIZER_CONFIG,
    VERL_ROLLOUT_CONFIG,
)

_PPO = (
    "model_engine=megatron trainer.nnodes=1 algorithm.adv_estimator=grpo actor_rollout_ref.rollout.name=vllm "
    "actor_rollout_ref.actor.use_dynamic_bsz=true"
)


def _example(more: str = "", release: str = "0.9.1") -> Example:
    return Example("verl", f"{_PPO} {more}".rstrip(), f"verl={release}")


ROWS = (
    StartRow(
        "START021",
        VERL_CONFIG,
        "validate_config",
        "validation gen temperature should be greater than 0",
        ">=0.7",
        "verl's validate_config",
        _example("actor_rollout_ref.rollout.val_kwargs.do_sample=true"),
        _example("actor_rollout_ref.rollout.val_kwargs.do_sample=true actor_rollout_ref.rollout.temperature=0"),
    ),
    StartRow(
        "START022",
        VERL_ACTOR_CONFIG,
        "ActorConfig.__post_init__",
        "Invalid loss_agg_mode",
        ">=0.7",
        "verl's ActorConfig",
        _example("actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum"),
        _example("actor_rollout_ref.actor.loss_agg_mode=mean"),
    ),
    StartRow(
        "START023",
        VERL_CRITIC_CONFIG,
        "CriticConfig.__post_init__",
        "must be divisible by",
        ">=0.7",
        "verl's CriticConfig",
        _example(
            "critic.enable=true critic.use_dynamic_bsz=false critic.ppo_micro_batch_size=32 "
            "critic.ppo_micro_batch_size_per_gpu=null"
        ),
        _example(
            "critic.enable=true critic.use_dynamic_bsz=false critic.ppo_micro_batch_size=48 "
            "critic.ppo_micro_batch_size_per_gpu=null"
        ),
    ),
    StartRow(
        "START024",
        VERL_ENGINE_CONFIG,
        "McoreEngineConfig.__post_init__",
        "not supported",
        ">=0.7",
        "verl's McoreEngineConfig",
        _example("actor_rollout_ref.actor.megatron.dtype=float16"),
        _example("actor_rollout_ref.actor.megatron.dtype=fp16"),
    ),
    StartRow(
        "START025",
        VERL_ROLLOUT_CONFIG,
        "RolloutConfig.__post_init__",
        "not implemented pipeline_model_parallel_size > 1",
        ">=0.7",
        "verl's RolloutConfig",
        _example("actor_rollout_ref.rollout.pipeline_model_parallel_size=1"),
        _example("actor_rollout_ref.rollout.pipeline_model_parallel_size=2"),
    ),
    StartRow(
        "START026",
        VERL_OPTIMIZER_CONFIG,
        "McoreOptimizerConfig.__post_init__",
        "must be one of",
        ">=0.9",
        "verl's McoreOptimizerConfig",
        _example("actor_rollout_ref.actor.optim.exp_avg_dtype=bf16"),
        _example("actor_rollout_ref.actor.optim.exp_avg_dtype=fp8"),
    ),
)
RULES = {row.id: rule_of(row, __name__) for row in ROWS}
