"""In place of slime's train.py: its training actor, built and updated once on a batch of made-up rollouts."""

import os

from slime.backends.megatron_utils.actor import MegatronTrainRayActor
from slime.utils.arguments import parse_args

from megatron_hcp.pretend.stand_ins.frameworks.slime_rollouts import rollouts

if __name__ == "__main__":
    args = parse_args()
    args.num_rollout = args.num_rollout or args.num_epoch  # the data set's length decides how many an epoch has
    if args.use_routing_replay:
        os.environ["ENABLE_ROUTING_REPLAY"] = "1"
    actor = MegatronTrainRayActor(int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]), "localhost", 1)
    is_taught = bool(getattr(args, "use_opd", False)) and args.opd_type == "megatron"
    actor.init(args, "actor", with_ref=args.kl_coef != 0 or args.use_kl_loss, with_opd_teacher=is_taught)
    actor.train(0, rollouts(args, actor.train_parallel_config))
