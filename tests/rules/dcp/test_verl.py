"""DCP rules on verl."""

from __future__ import annotations

from support.launches import ACTOR, OVERRIDE, VERL, VERL_ON_DEV
from support.rules import Row, finding, found_by_all, launch, test_verdict

__all__ = ["test_verdict"]

VERL_0_8 = VERL_ON_DEV.replace("0.9.1", "0.8.0")

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP018", "verl", f"{VERL}{ACTOR}virtual_pipeline_model_parallel_size=2", VERL_ON_DEV, "all: DCP018"),
    ("DCP018", "verl", f"{VERL}+{OVERRIDE}fp8=e4m3", VERL_ON_DEV, "all: DCP018"),
    (
        "DCP018",
        "verl",
        f"{VERL}{ACTOR}router_replay.mode=R2 +{OVERRIDE}moe_router_fusion=True",
        VERL_ON_DEV,
        "all: DCP018",
    ),
    ("DCP018", "verl", f"{VERL}actor_rollout_ref.model.use_remove_padding=False", VERL_ON_DEV, "all: DCP018"),
    (
        "DCP018",
        "verl",
        f"{VERL}distillation.enabled=True distillation.distillation_loss.loss_mode=forward_kl_topk",
        VERL_ON_DEV,
        "all: DCP018",
    ),
    ("DCP018", "verl", f"{VERL}{ACTOR}override_ddp_config.average_in_collective=True", VERL_ON_DEV, "all: DCP018"),
    ("DCP018", "verl", f"{VERL}{ACTOR}virtual_pipeline_model_parallel_size=1", VERL_ON_DEV, "all:"),
    ("DCP018", "verl", f"{VERL}{ACTOR}router_replay.mode=R2", VERL_ON_DEV, "all:"),
    ("DCP018", "verl", f"{VERL}distillation.enabled=True", VERL_ON_DEV, "all:"),
    (
        "DCP018",
        "verl",
        f"{VERL}distillation.enabled=False distillation.distillation_loss.loss_mode=forward_kl_topk",
        VERL_ON_DEV,
        "all:",
    ),
    ("DCP023", "verl", f"{VERL}actor_rollout_ref.actor.use_dynamic_bsz=True", VERL_ON_DEV, "all: DCP023"),
    ("DCP023", "verl", f"{VERL}actor_rollout_ref.actor.use_dynamic_bsz=False", VERL_ON_DEV, "all:"),
    (
        "DCP025",
        "verl",
        f"{VERL}actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=7",
        VERL_0_8,
        "all: DCP025 LOSS006",
    ),
    ("DCP025", "verl", f"{VERL}actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8", VERL_0_8, "all: LOSS006"),
    (
        "DCP025",
        "verl",
        f"{VERL}actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=9",
        VERL_0_8,
        "all: DCP025 LOSS006",
    ),
    ("DCP025", "verl", f"{VERL}actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16", VERL_0_8, "all: LOSS006"),
    (
        "DCP025",
        "verl",
        f"{VERL}actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=17",
        VERL_0_8,
        "all: DCP025 LOSS006",
    ),
    ("DCP026", "verl", f"{VERL}{ACTOR}context_parallel_size=4", VERL_ON_DEV, "all: DCP026"),
    ("DCP027", "verl", f"{VERL}algorithm.adv_estimator=gae critic.strategy=megatron", VERL_ON_DEV, "all: DCP027"),
    ("DCP027", "verl", f"{VERL}actor_rollout_ref.actor.use_kl_loss=True", VERL_ON_DEV, "all:"),
    ("DCP027", "verl", f"{VERL}algorithm.adv_estimator=grpo critic.strategy=megatron", VERL_ON_DEV, "all:"),
]


def test_dcp027_before_0_9_the_reference_model_does_not_follow_the_actor() -> None:
    text = f"{VERL} actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8"
    both = f"{text} actor_rollout_ref.ref.megatron.dynamic_context_parallel=True"
    assert "DCP027" in found_by_all(launch("verl", text, VERL_0_8)).split()
    assert "DCP027" not in found_by_all(launch("verl", both, VERL_0_8)).split()
    assert "DCP027" not in found_by_all(launch("verl", text, VERL_ON_DEV)).split()


def test_dcp018_a_critic_that_shares_the_switch_is_refused_as_a_value_model() -> None:
    text = f"{VERL} critic.strategy=megatron " + VERL.replace("actor_rollout_ref.actor", "critic")
    found = finding("DCP018", launch("verl", text, VERL_ON_DEV), fixes=True)
    assert "value model" in found.problem.found and found.role == "critic"
