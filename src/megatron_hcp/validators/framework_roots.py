"""What is read of the frameworks on Megatron, and the list of all upstreams."""

from __future__ import annotations

from megatron_hcp.validators.program import Unit
from megatron_hcp.validators.roots import MEGATRON_BRIDGE, MEGATRON_LM, UpstreamRoots

VERL = UpstreamRoots(
    repo="verl",
    version="verl/version/version",
    functions=(
        ("validate_config", ("verl/utils/config.py",)),
        ("need_reference_policy", ("verl/trainer/ppo/utils.py",)),
        ("need_critic", ("verl/trainer/ppo/utils.py",)),
    ),
    settings="verl/trainer/config/_generated_ppo_megatron_trainer.yaml",
    sections=(
        "actor_rollout_ref.actor",
        "actor_rollout_ref.ref",
        "actor_rollout_ref.rollout",
        "critic",
    ),
    start=Unit(
        "start",
        "def",
        ("config",),
        "",
        (
            "do validate_config(config, need_reference_policy(config), need_critic(config))",
            "if need_reference_policy(config)",
            " ref = config.actor_rollout_ref.ref",
            " ref.ppo_mini_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size",
            " ref.ppo_micro_batch_size = ref.log_prob_micro_batch_size",
            " ref.ppo_micro_batch_size_per_gpu = ref.log_prob_micro_batch_size_per_gpu",
            " ref.use_dynamic_bsz = ref.log_prob_use_dynamic_bsz",
            " do instantiate(ref)",
            "do instantiate(config.actor_rollout_ref.rollout)",
        ),
    ),
)
UPSTREAMS = (MEGATRON_LM, MEGATRON_BRIDGE, VERL)
