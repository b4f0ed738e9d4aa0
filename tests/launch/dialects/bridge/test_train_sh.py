"""Bridge's public launcher, scripts/training/train.sh (0.6 and later): its arguments go to run_recipe.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch

RECIPE = "qwen3_30b_a3b_sft_8gpu_h100_bf16_config"
TRAIN = f"./scripts/training/train.sh --nodes 2 --gpus-per-node 8 --recipe {RECIPE} --mode sft --dataset tulu3 "
"""As in examples/model_verification_cards/qwen3-30b-a3b/card.yaml."""


def launch(tmp_path: Path, text: str) -> Launch:
    path = tmp_path / "run.sh"
    path.write_text(text)
    return load_launch(str(path), LoadOptions())


def values(told: Launch, *names: str) -> list[object]:
    return [told.facts[name].value for name in names]


def test_the_launcher_is_known_without_its_file(tmp_path: Path) -> None:
    told = launch(tmp_path, TRAIN + "--context_parallel_size 2 -etp 2")
    assert told.dialect == "bridge"
    assert values(told, "nodes", "gpus_per_node", "cp", "etp") == [2, 8, 2, 2]
    assert any("read as Megatron-Bridge's launcher" in note for note in told.reading.notes)


def test_a_launcher_that_is_there_is_read(tmp_path: Path) -> None:
    own = tmp_path / "scripts" / "training"
    own.mkdir(parents=True)
    (own / "train.sh").write_text("torchrun --nproc-per-node 4 pretrain_gpt.py --context-parallel-size 2\n")
    told = launch(tmp_path, TRAIN)
    assert told.dialect == "mlm" and values(told, "cp", "gpus_per_node") == [2, 4]


def test_another_script_of_that_name_stays_unknown(tmp_path: Path) -> None:
    with pytest.raises(HcpError, match="which it starts, is not read"):
        launch(tmp_path, "./scripts/training/train.sh --epochs 3")


def test_the_length_is_the_datasets_and_is_copied_to_the_model(tmp_path: Path) -> None:
    """`COMMON_OVERRIDE_FIELDS` of run_recipe.py; the recipe has 2048."""
    told = launch(tmp_path, TRAIN + "--seq_length 32768")
    assert values(told, "dataset_seq_length", "seq_length") == [32768, 32768]
    told = launch(tmp_path, TRAIN + "--seq_length 32768 dataset.seq_length=4096")
    assert values(told, "dataset_seq_length", "seq_length") == [4096, 4096]


def test_the_performance_scripts_length_is_the_models(tmp_path: Path) -> None:
    """`set_user_overrides` of scripts/performance/utils/overrides.py; for other models the recipe makes the dataset."""
    command = "python scripts/performance/run_script.py --model_recipe_name flux_12b --domain diffusion -sl 4096"
    told = launch(tmp_path, command)
    assert values(told, "seq_length") == [4096] and "dataset_seq_length" not in told.facts
