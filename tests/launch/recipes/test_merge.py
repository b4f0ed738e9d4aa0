"""A launch together with its recipe: what the launch says wins, and every fact says where it is from."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch, load_launches, load_text

NAME = "llama3_8b_128k_pretrain_config"
"""v0.3.1: tp 4, pp 2, cp 8, 131072 tokens, seq_length of model and dataset alike."""


def launch(*words: str, target: str = "", bridge: str | None = "0.3.1", recipe: str | None = NAME) -> Launch:
    assumes = (f"bridge={bridge}",) if bridge else ()
    return load_launch(target, LoadOptions(words=words, assumes=assumes, recipe=recipe))


def test_a_recipe_alone_is_a_launch() -> None:
    alone = launch()
    assert alone.facts["cp"].value == 8
    assert alone.facts["cp"].origin == "recipe"
    assert alone.reading.recipe is not None
    assert alone.reading.recipe.origin == f"recipe {NAME} (Bridge 0.3.1)"


def test_what_the_launch_says_wins() -> None:
    told = launch("model.context_parallel_size=4", "train.micro_batch_size=2")
    assert (told.facts["cp"].value, told.facts["cp"].origin) == (4, "launch")
    assert (told.facts["micro_batch_size"].value, told.facts["micro_batch_size"].origin) == (2, "launch")
    assert (told.facts["tp"].value, told.facts["tp"].origin) == (4, "recipe")


def test_an_object_takes_the_place_of_a_name() -> None:
    """The recipe names `bf16_mixed`, whose fp8 is null."""
    told = launch("mixed_precision={fp8:e4m3,fp8_recipe:mxfp8}", bridge="0.6.0", recipe="llama3_8b_pretrain_config")
    settings = {setting.key: setting.value for setting in told.reading.settings}
    assert settings["mixed_precision.fp8"] == "e4m3" and "mixed_precision" not in settings


def test_nothing_is_presumed_of_a_known_recipe() -> None:
    assert not [name for name, fact in launch().facts.items() if fact.origin == "presumed"]
    unnamed = launch("model.context_parallel_size=4", recipe=None)
    assert [name for name, fact in unnamed.facts.items() if fact.origin == "presumed"]


def test_set_and_a_models_config_win_over_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_attention_heads": 16, "hidden_size": 2048, "num_hidden_layers": 4}')
    options = LoadOptions(
        recipe=NAME,
        assumes=("bridge=0.3.1",),
        sets=("model.context_parallel_size=2",),
        model_file=str(tmp_path / "config.json"),
    )
    told = load_launch("", options)
    assert (told.facts["cp"].value, told.facts["cp"].origin) == (2, "launch")
    assert (told.facts["heads"].value, told.facts["heads"].origin) == (16, "model")


def test_a_key_of_the_launch_replaces_the_same_fact_under_another_key() -> None:
    told = launch("dataset.seq_length=4096")
    assert told.facts["dataset_seq_length"].value == 4096


def test_a_section_that_the_launch_sets_to_null_takes_the_recipes_settings_below_it_away() -> None:
    packed = LoadOptions(recipe="llama3_8b_sft_config", assumes=("bridge=0.3.1",), dialect="bridge")
    assert load_launch("", packed).facts["packing"].value == "offline"
    unpacked = load_launch("", packed._replace(words=("dataset.packed_sequence_specs=null",)))
    assert unpacked.facts["packing"].value != "offline"
    assert "packed_sequence_size" not in unpacked.facts or unpacked.facts["packed_sequence_size"].origin != "recipe"


def script(tmp_path: Path, line: str) -> str:
    (tmp_path / "run.sh").write_text(f"{line}\n")
    return str(tmp_path / "run.sh")


def test_a_launcher_names_the_recipe(tmp_path: Path) -> None:
    run = f"torchrun --nnodes 8 --nproc-per-node 8 scripts/training/run_recipe.py --recipe {NAME} train.train_iters=5"
    told = launch(target=script(tmp_path, run), recipe=None)
    assert (told.facts["cp"].value, told.facts["cp"].origin) == (8, "recipe")
    assert told.facts["world_size"].value == 64


def test_the_options_of_a_benchmark_make_its_name(tmp_path: Path) -> None:
    """v0.6.2: perf_recipes/llama/h100: llama3_70b_pretrain_64gpu_h100_bf16_config has tp 4, pp 4, cp 2."""
    run = "torchrun scripts/performance/run_script.py -m llama -mr llama3_70b -g h100 -ng 64 -c bf16"
    told = launch(target=script(tmp_path, run), recipe=None, bridge="0.6.2")
    assert [told.facts[name].value for name in ("tp", "pp", "cp")] == [4, 4, 2]


def test_a_yaml_names_the_recipe_and_its_arguments(tmp_path: Path) -> None:
    """Nemotron's `recipe:` block; v0.3.1: gpt/gpt3_175b.py takes no argument of that name."""
    (tmp_path / "run.yaml").write_text(
        f"recipe:\n  _target_: megatron.bridge.recipes.llama.llama3.{NAME}\nmodel:\n  tensor_model_parallel_size: 8\n"
    )
    told = launch(target=str(tmp_path / "run.yaml"), recipe=None)
    assert [told.facts[name].value for name in ("tp", "cp")] == [8, 8]
    with_argument = f"recipe:\n  _target_: megatron.bridge.recipes.llama.llama3.{NAME}\n  strange: 1\n"
    (tmp_path / "run.yaml").write_text(with_argument)
    told = launch(target=str(tmp_path / "run.yaml"), recipe=None)
    assert "cp" not in told.facts
    assert "argument strange" in told.unknown["cp"]


def test_a_recipe_of_ones_own_leaves_the_launch_as_it_is(tmp_path: Path) -> None:
    told = launch(
        target=script(tmp_path, "torchrun run_recipe.py --recipe my_config model.context_parallel_size=2"), recipe=None
    )
    assert told.facts["cp"].value == 2
    assert any("my_config is not a recipe" in note for note in told.reading.notes)


def test_a_recipe_with_another_frameworks_launch_is_refused(tmp_path: Path) -> None:
    target = script(tmp_path, "torchrun pretrain_gpt.py --num-layers 2 --context-parallel-size 2")
    with pytest.raises(HcpError, match=f"found --recipe {NAME} with a mlm launch"):
        launch(target=target)


@pytest.mark.parametrize("stated", [None, "llama3_8b_64k_pretrain_config"])
def test_a_patched_text_is_read_with_the_recipe_again(tmp_path: Path, stated: str | None) -> None:
    """v0.3.1: recipes/llama/llama3.py: 131072 tokens, and 65536 with the stated recipe."""
    text = f"recipe:\n  _target_: megatron.bridge.recipes.llama.llama3.{NAME}\nmodel:\n  context_parallel_size: 3\n"
    (tmp_path / "run.yaml").write_text(text)
    told = launch(target=str(tmp_path / "run.yaml"), recipe=stated)
    again = load_text(told, text.replace("size: 3", "size: 2"))
    assert again.facts["cp"].value == 2
    assert again.facts["seq_length"].value == (65536 if stated else 131072)
    assert again.reading.recipe == told.reading.recipe


def test_each_command_of_a_script_has_its_own_recipe(tmp_path: Path) -> None:
    """v0.3.1: recipes/llama/llama3.py."""
    run = "torchrun run_recipe.py --recipe llama3_8b_{}_pretrain_config\n"
    target = script(tmp_path, run.format("64k") + run.format("128k"))
    options = LoadOptions(assumes=("bridge=0.3.1",))
    assert [each.facts["seq_length"].value for each in load_launches(target, options)] == [65536, 131072]
    both = load_launches(target, options._replace(recipe="llama3_8b_16k_pretrain_config"))
    assert [each.facts["seq_length"].value for each in both] == [16384, 16384]


FINE_TUNING = "llama3_8b_sft_config"
RUN = f"torchrun run_recipe.py --recipe {FINE_TUNING} "


@pytest.mark.parametrize(
    ("overrides", "multiple"),
    [
        ("model.context_parallel_size=1 model.tensor_model_parallel_size=1", 3),
        ("model.context_parallel_size=4 model.tensor_model_parallel_size=1", 24),
        ("model.context_parallel_size=4 model.tensor_model_parallel_size=2 model.sequence_parallel=true", 24),
        ("model.context_parallel_size=2 model.tensor_model_parallel_size=4 model.sequence_parallel=true", 24),
        ("model.context_parallel_size=1 model.tensor_model_parallel_size=4 model.sequence_parallel=true", 12),
    ],
)
def test_the_launcher_pads_packed_sequences_for_cp(tmp_path: Path, overrides: str, multiple: int) -> None:
    """v0.6.0: scripts/training/recipe_runner.py, `sync_offline_packing_alignment`, from pad_seq_to_mult 3."""
    told = launch(
        target=script(tmp_path, f"{RUN}{overrides} dataset.offline_packing_specs.pad_seq_to_mult=3"),
        bridge="0.6.2",
        recipe=None,
    )
    written = {setting.key: setting.value for setting in told.reading.settings}
    assert written["dataset.offline_packing_specs.pad_seq_to_mult"] == multiple


def test_the_launcher_takes_the_loss_per_token_for_fine_tuning_with_cp(tmp_path: Path) -> None:
    """v0.6.0: scripts/training/recipe_runner.py, `sync_finetuning_cp_invariants`; evaluation with CP counts too."""
    sizes = {
        "model.context_parallel_size=2": True,
        "model.context_parallel_size=1": False,
        "model.context_parallel_size=1 dist.eval_context_parallel_size=2": True,
    }
    for words, taken in sizes.items():
        told = launch(target=script(tmp_path, RUN + words), bridge="0.6.2", recipe=None)
        assert told.facts["calculate_per_token_loss"].value is taken


@pytest.mark.parametrize(("bridge", "length"), [("0.3.1", 16384), ("0.4.2", 4096), ("0.6.2", 4096)])
def test_the_launcher_gives_the_model_the_datasets_length(tmp_path: Path, bridge: str, length: int) -> None:
    """v0.4.2: scripts/training/run_recipe.py, before `train_func`; v0.3.1 has no such lines. The recipe has 16384."""
    key = "dataset.seq_length" if bridge == "0.6.2" else "dataset.sequence_length"
    run = f"torchrun run_recipe.py --recipe llama3_8b_16k_pretrain_config {key}=4096"
    told = launch(target=script(tmp_path, run), bridge=bridge, recipe=None)
    assert told.facts["seq_length"].value == length


def test_a_models_length_that_the_launcher_replaces_is_shown_and_warned_about(hcp, tmp_path: Path) -> None:
    run = "torchrun run_recipe.py --recipe llama3_8b_16k_pretrain_config model.seq_length=4096"
    path = script(tmp_path, run)
    assert launch(target=path, bridge="0.6.2", recipe=None).facts["seq_length"].value == 4096
    printed = hcp("check", str(path), "--assume", "bridge=0.6.2").stdout
    assert "warning LEN003" in printed and "found model.seq_length 4096, dataset.seq_length 16384" in printed


def test_a_diffusion_recipe_does_not_fine_tune() -> None:
    """v0.6.2: recipes/wan: cp 8, a WanDatasetConfig that packs; ConfigContainer.validate names other datasets."""
    told = launch(recipe="wan_1_3b_pretrain_config", bridge="0.6.2")
    assert (told.facts["cp"].value, told.facts["packing"].value) == (8, "energon")
    assert told.facts["finetune"].value is False


def test_a_recipe_without_a_models_size_leaves_it_to_the_launch() -> None:
    """v0.6.2: recipes/gpt: a GPTModelProvider with 0 layers, for the user to set."""
    told = launch(recipe="vanilla_gpt_pretrain_config", bridge="0.6.2")
    assert "num_layers" in told.unknown
    assert (
        launch("model.num_layers=4", recipe="vanilla_gpt_pretrain_config", bridge="0.6.2").facts["num_layers"].value
        == 4
    )


def test_the_older_name_of_graphed_modules_decides_beside_the_default() -> None:
    """v0.6.2: perf_recipes/llama: cuda_graph_scope is ["mlp"], and cuda_graph_modules is left at "full".

    utils/cuda_graph.py, `cuda_graph_module_names`, gives ["mlp"]; so ConfigContainer.validate accepts the recipe.
    """
    told = launch(recipe="llama3_70b_sft_32gpu_gb200_bf16_config", bridge="0.6.2")
    assert told.facts["cuda_graph_modules"].value == ["mlp"]
