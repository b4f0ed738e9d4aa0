"""What a launch hides, and what it merely does not state."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.place import Location
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.hf import STATED
from megatron_hcp.launch.hidden import OF_MODEL, hidden, hides_any, key_to_set
from megatron_hcp.launch.load import LoadOptions, load_launch

CORE = "--num-layers 4 --num-attention-heads 8 --hidden-size 512 --seq-length 4096"


def script(tmp_path: Path, text: str, **options: tuple[str, ...]) -> Launch:
    file = tmp_path / "train.sh"
    file.write_text(f"#!/bin/bash\n{text}\n")
    return load_launch(str(file), LoadOptions(**options))  # type: ignore[arg-type]


def overrides(*words: str, **options: tuple[str, ...]) -> Launch:
    return load_launch("", LoadOptions(words=words, **options))  # type: ignore[arg-type]


def test_a_launch_that_says_all_hides_nothing(tmp_path: Path) -> None:
    launch = script(tmp_path, f"torchrun --nproc-per-node 8 pretrain_gpt.py {CORE} --context-parallel-size 2")
    assert not hides_any(launch)
    assert hidden(launch, "te") is None


def test_a_variable_that_is_not_set_hides_its_own_setting_alone(tmp_path: Path) -> None:
    launch = script(
        tmp_path, f"torchrun pretrain_gpt.py {CORE} --context-parallel-size $CP --tensor-model-parallel-size 2"
    )
    found = hidden(launch, "cp")
    assert found is not None
    assert (found.hides, found.reason) == ("word", "CP is not set in this script")
    assert key_to_set(launch, "cp") == "--set context_parallel_size=VALUE"
    assert list(launch.unknown) == ["cp"]


def test_what_follows_from_a_hidden_setting_is_hidden_too(tmp_path: Path) -> None:
    launch = script(tmp_path, f"torchrun --nproc-per-node 8 pretrain_gpt.py {CORE} --tensor-model-parallel-size $TP")
    assert "dp" not in launch.facts
    found = hidden(launch, "dp")
    assert found is not None
    assert found.reason == "TP is not set in this script"


def test_a_sourced_file_hides_every_option_that_is_not_written(tmp_path: Path) -> None:
    launch = script(tmp_path, f"source models/x.sh\ntorchrun pretrain_gpt.py {CORE} ${{MODEL_ARGS[@]}}")
    found = hidden(launch, "window_size")
    assert found is not None
    assert found.reason == "line 2 sources models/x.sh, which is not read"
    assert found.location == Location(str(tmp_path / "train.sh"), 2, 1, 2, 1)


@pytest.mark.parametrize("name", ["te", "arch", "nvlink_domain", "world_size", "nodes", "mcore"])
def test_versions_and_the_cluster_are_not_hidden_where_nobody_states_them(name: str) -> None:
    assert hidden(overrides("model.context_parallel_size=2"), name) is None
    assert hidden(overrides("--context-parallel-size", "2"), name) is None


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [("$SLURM_NNODES", "SLURM_NNODES is set by Slurm when the job runs"), ("$N", "N is not set in this script")],
)
def test_the_number_of_nodes_is_hidden_by_a_word_and_by_slurm(tmp_path: Path, nodes: str, reason: str) -> None:
    launch = script(tmp_path, f"torchrun --nproc-per-node 8 --nnodes {nodes} pretrain_gpt.py {CORE}")
    found = hidden(launch, "world_size")
    assert found is not None
    assert found.reason == reason
    assert key_to_set(launch, "world_size") == "--assume world_size=N"


@pytest.mark.parametrize(
    ("header", "is_hidden"), [("--gpus-per-node=8", True), ("--nodes=2", False), ("--ntasks=16", False), ("", False)]
)
def test_a_job_that_states_no_nodes_gets_them_on_sbatchs_command_line(
    tmp_path: Path, header: str, is_hidden: bool
) -> None:
    lines = f"#SBATCH {header}\n#SBATCH --ntasks-per-node=8" if header else ""
    launch = script(tmp_path, f"{lines}\nsrun python pretrain_gpt.py {CORE}")
    assert ("world_size" not in launch.facts and hidden(launch, "world_size") is not None) is is_hidden


def test_what_a_models_config_decides_is_what_one_can_say() -> None:
    told = STATED | {"attention_variant", "hybrid_pattern", "window_size", "window_attn_skip_freq", "softmax_type"}
    assert told - {"mtp_layers", "vision"} <= OF_MODEL


def test_an_unknown_recipe_hides_what_an_override_list_leaves_out() -> None:
    launch = overrides("model.context_parallel_size=2")
    for name in ("tp", "seq_length", "heads", "kv_heads", "calculate_per_token_loss", "packing", "finetune"):
        found = hidden(launch, name)
        assert found is not None, name
        assert found.hides == "recipe"


def test_in_verl_the_model_hides_its_sizes_until_its_config_is_given() -> None:
    launch = overrides("model_engine=megatron", "actor_rollout_ref.actor.megatron.context_parallel_size=2")
    found = hidden(launch, "heads")
    assert found is not None
    assert (found.hides, found.do) == ("model", "pass the model's config.json, or its public name, with --model")
    assert hidden(launch, "te") is None


def test_a_checkpoint_that_holds_the_arguments_counts_as_the_model() -> None:
    launch = overrides("--use-checkpoint-args", "--load", "/ckpt", "--context-parallel-size", "2")
    found = hidden(launch, "heads")
    assert found is None or found.hides == "model"


def test_a_checkpoint_whose_place_is_hidden_counts_as_the_model_too(tmp_path: Path) -> None:
    start = "torchrun pretrain_gpt.py --use-checkpoint-args --tensor-model-parallel-size 8"
    found = hidden(script(tmp_path, f"{start} --load $CKPT"), "heads")
    assert found is not None and found.hides == "model"
    assert hidden(script(tmp_path, start), "heads") is None


def test_where_the_site_keeps_its_files_is_nobodys_secret(tmp_path: Path) -> None:
    launch = script(tmp_path, f"torchrun pretrain_gpt.py {CORE} --save $OUT")
    assert "checkpoint_save" in launch.unknown
    assert hidden(launch, "checkpoint_save") is None


def test_a_value_that_only_upstream_evaluates_hides_its_meaning() -> None:
    launch = overrides("--window-attn-skip-freq", "([1]*3+[0])*2", "--window-size", "128,0")
    found = hidden(launch, "window_attn_skip_freq")
    assert found is not None
    assert found.reason == "window_attn_skip_freq is an expression that is not evaluated"
