"""In place of verl's main_ppo: its actor, built and updated once by its trainer's own code, on made-up rollouts."""

import sys

from hydra import compose, initialize_config_module
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine_workers import ActorRolloutRefWorker

from megatron_hcp.pretend.stand_ins.frameworks.verl_rollouts import rollouts

STEPS = 1000

if __name__ == "__main__":
    name, *overrides = sys.argv[1:]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(name, overrides)
    # The trainer takes it from the data's length; what a launch sets for the trainer is left out (`verl_words`).
    config.actor_rollout_ref.actor.optim.total_training_steps = STEPS
    worker = ActorRolloutRefWorker(config.actor_rollout_ref, "actor", distillation_config=config.get("distillation"))
    worker.init_model()
    trainer = RayPPOTrainer.__new__(RayPPOTrainer)  # its constructor asks for a cluster and for data
    trainer.config, trainer.actor_rollout_wg = config, worker
    if config.get("distillation") is not None:
        trainer.distillation_config = omega_conf_to_dataclass(config.distillation)
    trainer._update_actor(rollouts(config, worker.actor.engine.get_data_parallel_size()))
