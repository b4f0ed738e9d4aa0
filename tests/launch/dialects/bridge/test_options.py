"""What Bridge's own launchers set by their options, in the releases that the tests name.

The launches are shortened from AI-Hypercomputer/gpu-recipes, training/*/megatron-bridge-*/*/recipe/launch*.sh.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch

LLAMA = """
torchrun --nproc-per-node=8 --nnodes=4 scripts/performance/run_script.py --gpu h100 --model_family_name llama \\
    --model_recipe_name llama3_70b --num_gpus 32 --gpus_per_node 8 --compute_dtype fp8_cs --global_batch_size 1024 \\
    --micro_batch_size 1 --seq_length 8192 --tensor_model_parallel_size 2 --pipeline_model_parallel_size 1 \\
    --context_parallel_size 1 --virtual_pipeline_model_parallel_size None --expert_model_parallel_size 1 \\
    --use_megatron_fsdp true --max_steps 50
"""
"""a3ultra/llama3_70b/megatron-bridge-slurm/nemo2511; no release has a recipe for 32 GPUs in FP8."""


def launch(tmp_path: Path, text: str, *, model: str | None = None) -> Launch:
    path = tmp_path / "launch.sh"
    path.write_text(text)
    return load_launch(str(path), LoadOptions(model_file=model))


def values(told: Launch, *names: str) -> list[object]:
    return [told.facts[name].value for name in names]


def test_a_model_that_the_launcher_names_has_its_recipes_sizes(tmp_path: Path) -> None:
    told = launch(tmp_path, LLAMA)
    assert values(told, "num_layers", "heads", "kv_heads", "num_experts", "vision") == [80, 64, 8, None, False]
    assert told.facts["num_layers"].origin == "model-name"
    assert told.facts["num_layers"].key == "--model_recipe_name"


def test_sizes_that_the_launch_or_a_config_json_states_win(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_attention_heads": 16, "hidden_size": 2048, "num_hidden_layers": 4}')
    told = launch(tmp_path, LLAMA.replace("--max_steps 50", "--num_layers 8"))
    assert values(told, "num_layers", "heads") == [8, 64]
    told = launch(tmp_path, LLAMA, model=str(tmp_path / "config.json"))
    assert values(told, "num_layers", "heads") == [4, 16]


def test_a_recipe_of_ones_own_is_not_a_known_model_by_its_name(tmp_path: Path) -> None:
    told = launch(tmp_path, "torchrun --nproc-per-node 8 scripts/training/run_recipe.py --recipe llama3_70b_my_config")
    assert "num_layers" not in told.facts
    assert told.facts["model_name"].value == "llama3_70b_my_config"


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("-tp 4", {"sequence_parallel": True}),
        ("-tp 1", {"sequence_parallel": False}),
        ("--use_megatron_fsdp true", {"fsdp": True, "average_in_collective": False}),
        (
            "--recompute_num_layers 5",
            {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 5},
        ),
        ("--recompute_modules mla_up_proj,mlp", {"recompute_granularity": "selective"}),
        ("--moe_a2a_overlap true", {"overlap_moe_expert_parallel_comm": True, "moe_shared_expert_overlap": False}),
        ("-sl 4096", {"seq_length": 4096, "dataset_seq_length": 4096}),
    ],
)
def test_options_of_the_performance_scripts_set_what_their_overrides_set(
    tmp_path: Path, option: str, expected: dict[str, object]
) -> None:
    """v0.2.0 scripts/performance/utils/helpers.py, v0.3.0 to HEAD utils/overrides.py, set_user_overrides."""
    told = launch(
        tmp_path, f"python scripts/performance/run_script.py -m llama -mr llama3_70b -ng 64 -g gb300 {option}"
    )
    assert {name: told.facts[name].value for name in expected} == expected


def test_fsdp_is_left_to_the_recipe_unless_it_is_switched_on(tmp_path: Path) -> None:
    """v0.6.0: llama3_70b_pretrain_64gpu_gb300_bf16_config has FSDP; _set_megatron_fsdp_overrides(False) returns."""
    command = "python scripts/performance/run_script.py -m llama -mr llama3_70b -ng 64 -g gb300 -c bf16 "
    assert values(launch(tmp_path, command + "--use_megatron_fsdp false"), "fsdp") == [True]


def test_those_options_come_after_the_overrides(tmp_path: Path) -> None:
    """run_script.py: set_cli_overrides, then set_user_overrides."""
    command = "python scripts/performance/run_script.py -m llama -mr llama3_70b -tp 2 model.sequence_parallel=false"
    assert values(launch(tmp_path, command), "tp", "sequence_parallel") == [2, True]


def test_a_size_that_is_not_known_leaves_open_what_it_decides(tmp_path: Path) -> None:
    told = launch(tmp_path, 'python scripts/performance/run_script.py -m llama -mr llama3_70b -tp "$TP"')
    assert {"tp", "sequence_parallel"} <= told.unknown.keys()


def test_pretraining_data_are_mock_data_unless_the_launcher_is_told_otherwise(tmp_path: Path) -> None:
    """argument_parser.py: --data mock, --task pretrain and --domain llm are the defaults; such rows are not packed."""
    command = "python scripts/performance/run_script.py -m llama -mr llama3_70b -ng 64 "
    command = command.replace("-ng 64", "-ng 48")  # no release has a recipe for 48 GPUs
    told = launch(tmp_path, command)
    assert values(told, "packing", "thd", "finetune", "enable_offline_packing") == ["none", False, False, False]
    for other in ("--data squad_packed", "--task sft", "--domain vlm"):
        assert "packing" not in launch(tmp_path, command + other).facts


def test_model_recipes_are_taken_if_the_launcher_is_told_so(tmp_path: Path) -> None:
    """v0.6.0 utils/utils.py, build_recipe_config: `--use_recipes` takes {model}_{task}_config of recipes/."""
    command = "python scripts/performance/setup_experiment.py -m llama -mr llama3_8b -ng 16 -g h100 --use_recipes"
    told = launch(tmp_path, command)
    assert told.reading.recipe is not None and "llama3_8b_pretrain_config" in told.reading.recipe.origin


def test_the_public_launchers_options_are_overrides(tmp_path: Path) -> None:
    text = (
        "./scripts/training/train.sh --nodes 2 --gpus-per-node 8 --recipe qwen3_8b_pretrain_config --mode pretrain "
        "--max_steps 100 --lr 3e-4 --load_dir work/a --save_dir $OUT --save_interval 50 checkpoint.ckpt_step=50\n"
    )
    read = launch(tmp_path, text).reading
    written = {setting.key: setting.value for setting in read.settings}
    assert (written["checkpoint.load"], written["train.train_iters"]) == ("work/a", 100)
    assert "checkpoint.save" in read.unknown and "checkpoint.save" not in written
