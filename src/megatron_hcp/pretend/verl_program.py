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

from megatron_hcp.pretend.stand_ins.frameworks.verl import LEGACY
from megatron_hcp.pretend.stand_ins.frameworks.verl_rollouts import conversations, rollouts

STEPS = 1000
"""A trainer takes them from the data's length; what a launch sets for the trainer is left out (`verl_words`)."""


def train_actor(config: Any) -> None:
    config.actor_rollout_ref.actor.optim.total_training_steps = STEPS
    is_legacy = LEGACY in sys.modules and config.trainer.get("use_legacy_worker_impl") != "disable"
    (update_legacy_actor if is_legacy else update_actor)(config)


def update_actor(config: Any) -> None:
    part = config.actor_rollout_ref
    worker = ActorRolloutRefWorker(part, "actor", distillation_config=config.get("distillation"))
    worker.init_model()
    trainer = RayPPOTrainer.__new__(RayPPOTrainer)  # its constructor asks for a cluster and for data
    trainer.without_constructor = True
    trainer.config, trainer.actor_rollout_wg, trainer.use_legacy_worker_impl = config, worker, "disable"
    if config.get("distillation") is not None:
        trainer.distillation_config = omega_conf_to_dataclass(config.distillation)
    samples = part.actor.ppo_mini_batch_size * part.rollout.n // worker.actor.engine.get_data_parallel_size()
    trainer._update_actor(rollouts(config, max(1, samples)))


def update_legacy_actor(config: Any) -> None:
    """The worker that releases before 0.8 take unless they are told otherwise: a mini-batch fills the pipeline."""
    workers: Any = sys.modules[LEGACY]
    part = config.actor_rollout_ref
    worker = workers.ActorRolloutRefWorker(part, "actor")
    few = (part.actor.ppo_micro_batch_size_per_gpu or 1) * part.actor.megatron.pipeline_model_parallel_size
    part.actor.ppo_mini_batch_size = few  # it was made the number of a rank's samples
    worker.init_model()
    data = rollouts(config, few)
    data.meta_info["temperature"] = part.rollout.temperature
    worker.update_actor(data)


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
    train = train_actor if "actor_rollout_ref" in config else train_on_conversations
    train(config)
