"""In place of a program that runs a recipe of Megatron-Bridge: `RECIPE OVERRIDE…`, on its mock data."""

import sys

from megatron.bridge import recipes
from megatron.bridge.training.pretrain import pretrain
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

from megatron_hcp.pretend.stand_ins.frameworks.bridge import step_of

if __name__ == "__main__":
    name, *overrides = sys.argv[1:]
    made = getattr(recipes, name)()
    config = process_config_with_overrides(made, cli_overrides=overrides)
    pretrain(config or made, step_of(name))  # until 0.2 the overrides change the recipe's own
