"""In place of a program that runs a recipe of Megatron-Bridge: `RECIPE OVERRIDE…`, on its mock data.

A checkout from 0.6 on has scripts/training/run_recipe.py, which makes a recipe ready and knows its step: it is run.
"""

import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import megatron.bridge
from megatron.bridge import recipes
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.pretrain import pretrain
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

from megatron_hcp.pretend.record import RECORD

ROOT = Path(megatron.bridge.__file__).resolve().parents[2]
SCRIPTS = ROOT.parent / "scripts/training"
OF_ANOTHER_STEP = ("_vl_", "_45v_", "omni_", "audio_", "flux_", "wan_", "step37_", "ministral3_")


def run_their_program(*words: str) -> None:
    RECORD.roots += (f"{SCRIPTS}/",)
    sys.path.insert(0, str(SCRIPTS))
    runner: Any = importlib.import_module("recipe_runner")
    program: Any = importlib.import_module("run_recipe")
    program.REPO_ROOT = os.getcwd()  # it changes to it, and would to what is read-only
    os.environ[runner.RECIPE_ENV_BOOTSTRAP_MARKER] = str(os.getpid())  # it would start itself anew
    runner.TRAIN_FUNCTIONS["finetune"] = pretrain  # the other asks for a checkpoint, and goes on with this one
    program.main([*words])


def run(name: str, *overrides: str) -> None:
    if any(part in name for part in OF_ANOTHER_STEP):
        raise NotImplementedError("the step of this model, which scripts/training of Bridge's checkout knows")
    made = getattr(recipes, name)()
    config = process_config_with_overrides(made, cli_overrides=overrides) or made  # until 0.2 they change the recipe's
    length = getattr(config.dataset, "seq_length", None)
    if length is not None:
        config.model.seq_length = length  # as Bridge's own programs do
    pretrain(config, forward_step)


if __name__ == "__main__":
    words = sys.argv[1:]
    if "_pretrain_" not in words[0]:
        folder = tempfile.mkdtemp()
        Path(folder, "latest_train_state.pt").touch()  # with which fine-tuning begins; nothing of it is loaded
        words.append(f"checkpoint.pretrained_checkpoint={folder}")
    if ROOT.name == "src" and (SCRIPTS / "recipe_runner.py").is_file():  # beside a wheel lies what nobody named
        run_their_program("--recipe", *words)
    else:
        run(*words)
