"""The corpus harness: what it finds in a folder, what it says, and how it reads Megatron-Bridge's recipes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bridge_recipes import recipe_launches

RECIPES = """
from megatron.bridge.recipes.base import base_config as start

def big_config():
    cfg = start()
    cfg.model.context_parallel_size = 2 * cfg.model.pipeline_model_parallel_size
    if cfg.model.context_parallel_size > 1:
        cfg.dataset.offline_packing_specs.pad_seq_to_mult = cfg.model.context_parallel_size
    if some_flag():
        cfg.model.seq_length = 17
    return cfg
"""
BASE = """
from megatron.bridge.packing import AutoBridge, ConfigContainer, GPTSFTDatasetConfig, PackedSequenceSpecs

def base_config():
    size = 4096
    cfg = ConfigContainer(model=None, dataset=GPTSFTDatasetConfig(offline_packing_specs=PackedSequenceSpecs(
        packed_sequence_size=size)))
    cfg.model = AutoBridge.from_hf_pretrained("x").to_megatron_provider()
    cfg.model.pipeline_model_parallel_size = 2
    cfg.model.seq_length = size
    return cfg
"""
CLASSES = """
class AutoBridge: ...

@dataclass
class PackedSequenceSpecs:
    packed_sequence_size: int = -1
    pad_seq_to_mult: int | None = 1

@dataclass
class GPTSFTDatasetConfig:
    offline_packing_specs: PackedSequenceSpecs | None = None

@dataclass
class ConfigContainer:
    model: object = None
    dataset: object = None
"""


def corpus(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, root / "lab", "corpus", "--corpus", folder], capture_output=True, text=True)


@pytest.mark.slow
def test_launches_are_found_counted_and_checked(tmp_path: Path, root: Path) -> None:
    (tmp_path / "good").mkdir()
    good = "MODEL_ARGS:\n  --context-parallel-size: 2\n  --seq-length: 64\n"
    (tmp_path / "good" / "model_config.yaml").write_text(good)
    (tmp_path / "notes.yaml").write_text("a: 1\n")
    done = corpus(root, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("1 launches (1 mlm), 1 with context parallelism")
    (tmp_path / "run.sh").write_text("torchrun pretrain_gpt.py --context-parallel-size 3 --seq-length 64\n")
    done = corpus(root, tmp_path)
    assert done.returncode == 1
    assert "error run.sh: CP001: seq_length 64 at context_parallel_size 3; wanted a multiple of 6" in done.stdout


@pytest.mark.slow
def test_recipes_are_read_through_imports_conditions_and_class_defaults(tmp_path: Path, root: Path) -> None:
    package = tmp_path / "src" / "megatron" / "bridge"
    (package / "recipes").mkdir(parents=True)
    (package / "recipes" / "base.py").write_text(BASE)
    (package / "recipes" / "big.py").write_text(RECIPES)
    (package / "recipes" / "__init__.py").write_text("from megatron.bridge.recipes.big import *\n")
    (package / "packing.py").write_text(CLASSES)
    launches = dict(recipe_launches(tmp_path))
    big = launches["src/megatron/bridge/recipes/big.py:big_config"]
    settings = {setting.key: setting.value for setting in big.settings}
    assert settings["model.context_parallel_size"] == 4
    assert settings["dataset.offline_packing_specs.pad_seq_to_mult"] == 4  # 1 by default, then as the condition has it
    assert settings["dataset.offline_packing_specs.packed_sequence_size"] == 4096
    assert settings["dataset._target_"] == "GPTSFTDatasetConfig"
    assert "model.seq_length" not in settings  # under a condition that cannot be told
    assert big.facts["finetune"].value is True
    done = corpus(root, tmp_path)
    assert done.returncode == 1
    assert "big.py:big_config: PACK002: sequences padded to a multiple of 4 at context_parallel_size 4" in done.stdout
