"""In place of verl's programs: its actor, updated once on made-up rollouts, or its SFT trainer's model."""

import os
import sys
from pathlib import Path
from typing import Any

import verl
from hydra import compose, initialize_config_dir
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine_workers import ActorRolloutRefWorker

from megatron_hcp.pretend.stand_ins.frameworks.verl_rollouts import conversations, rollouts

STEPS = 1000
"""A trainer takes them from the data's length; what a launch sets for the trainer is left out (`verl_words`)."""


def update_actor(config: Any) -> None:
    config.actor_rollout_ref.actor.optim.total_training_steps = STEPS
    worker = ActorRolloutRefWorker(config.actor_rollout_ref, "actor", distillation_config=config.get("distillation"))
    worker.init_model()
    trainer = RayPPOTrainer.__new__(RayPPOTrainer)  # its constructor asks for a cluster and for data
    trainer.without_constructor = True
    trainer.config, trainer.actor_rollout_wg, trainer.use_legacy_worker_impl = config, worker, "disable"
    if config.get("distillation") is not None:
        trainer.distillation_config = omega_conf_to_dataclass(config.distillation)
    trainer._update_actor(rollouts(config, worker.actor.engine.get_data_parallel_size()))


def train_on_conversations(config: Any) -> None:
    config.optim.total_training_steps = STEPS
    trainer = SFTTrainer.__new__(SFTTrainer)  # its constructor reads data and checkpoints
    trainer.without_constructor, trainer.config = True, config
    trainer._build_config()
    trainer._build_engine()
    trainer.training_client.reset()
    trainer.training_client.train_batch(conversations(config, trainer.engine.get_data_parallel_size()))


if __name__ == "__main__":
    folder, name, *overrides = sys.argv[1:]
    root, here = Path(verl.__file__).parents[1], os.getcwd()
    os.chdir(root)  # from which its configurations name each other
    with initialize_config_dir(str(root / folder), version_base=None):
        config = compose(name, overrides)
    os.chdir(here)
    train = update_actor if "actor_rollout_ref" in config else train_on_conversations
    train(config)
