"""In place of a program that runs a recipe of Megatron-Bridge: `RECIPE OVERRIDE…`, on its mock data.

A checkout from 0.6 on has the program that makes a recipe ready, scripts/training/run_recipe.py: then it is run itself.
"""

import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import megatron.bridge
from megatron.bridge import recipes
from megatron.bridge.training.pretrain import pretrain
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins.frameworks.bridge import step_of

SCRIPTS = Path(megatron.bridge.__file__).resolve().parents[3] / "scripts/training"


def run_their_program(words: list[str]) -> None:
    RECORD.roots += (f"{SCRIPTS}/",)
    sys.path.insert(0, str(SCRIPTS))
    runner: Any = importlib.import_module("recipe_runner")
    program: Any = importlib.import_module("run_recipe")
    program.REPO_ROOT = os.getcwd()  # to which it changes, and which is read-only
    os.environ[runner.RECIPE_ENV_BOOTSTRAP_MARKER] = str(os.getpid())  # it would start itself anew
    runner.TRAIN_FUNCTIONS["finetune"] = pretrain  # the other asks for a checkpoint, and goes on with this one
    program.main(words)


def empty_checkpoint() -> str:
    """A folder that Bridge takes for the checkpoint that fine-tuning begins with; nothing of it is loaded."""
    folder = tempfile.mkdtemp()
    Path(folder, "latest_train_state.pt").touch()
    return folder


def run(name: str, overrides: list[str]) -> None:
    made = getattr(recipes, name)()
    config = process_config_with_overrides(made, cli_overrides=overrides) or made  # until 0.2 they change the recipe's
    length = getattr(config.dataset, "seq_length", None)
    if length is not None and hasattr(config.model, "seq_length"):
        config.model.seq_length = length  # as Bridge's own programs do
    pretrain(config, step_of(name))


if __name__ == "__main__":
    name, *overrides = sys.argv[1:]
    if "_pretrain_" not in f"_{name}_":
        overrides.append(f"checkpoint.pretrained_checkpoint={empty_checkpoint()}")
    if (SCRIPTS / "recipe_runner.py").is_file():
        run_their_program(["--recipe", name, *overrides])
    else:
        run(name, overrides)
