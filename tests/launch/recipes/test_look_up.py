"""What `recipes.txt` says of a recipe: by release, over all releases, and of a name that is none.

The values are those of Megatron-Bridge's sources at the tags named in each test.
"""

from __future__ import annotations

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Elsewhere
from megatron_hcp.launch.recipes.table import look_up, of_model, releases


def values(name: str, version: str | None) -> dict[str, object]:
    return {setting.key: setting.value for setting in look_up(name, version).settings}


def test_a_recipe_has_the_values_of_its_release() -> None:
    """v0.3.1: recipes/llama/llama3.py, llama3_8b_128k_pretrain_config."""
    known = values("llama3_8b_128k_pretrain_config", "0.3.1")
    assert known["model.context_parallel_size"] == 8
    assert known["model.tensor_model_parallel_size"] == 4
    assert known["model.pipeline_model_parallel_size"] == 2
    assert known["model.seq_length"] == known["dataset.sequence_length"] == 131072
    assert known["dataset._target_"] == "GPTDatasetConfig"
    assert known["train.micro_batch_size"] == 1


def test_sizes_of_the_model_are_known_where_bridge_wrote_them_down() -> None:
    """v0.3.1: models/llama/llama_provider.py, Llama3ModelProvider8B."""
    known = values("llama3_8b_pretrain_config", "0.6.2")
    assert known["model.num_attention_heads"] == 32
    assert known["model.num_query_groups"] == 8
    assert known["model.num_layers"] == 32
    assert known["vision"] is False


def test_what_a_models_bridge_writes_is_known() -> None:
    """v0.6.0: glm_moe_dsa/glm5_bridge.py writes cp_comm_type; qwen_vl/qwen3_vl_provider.py has p2p as its default."""
    assert values("glm52_sft_192gpu_gb200_bf16_128k_config", "0.6.2")["model.cp_comm_type"] == "allgather"
    assert values("qwen3_vl_235b_a22b_pretrain_256gpu_h100_bf16_mock_config", "0.6.2")["model.cp_comm_type"] == "p2p"


def test_what_only_a_config_json_tells_is_unknown_and_says_so() -> None:
    recipe = look_up("gemma4_e4b_pretrain_2gpu_h100_bf16_config", "0.6.2")
    assert recipe.model == "google/gemma-4-E4B-it"
    reason = recipe.unknown["model.num_attention_heads"]
    assert isinstance(reason, Elsewhere)
    assert "config.json of google/gemma-4-E4B-it" in reason and "--model" in reason


def test_without_a_release_only_what_all_releases_agree_on_is_known() -> None:
    """gpt-oss-20b: v0.3.1 pretrains on tp 2, v0.6.2's alias on another layout of 16 GPUs."""
    name = "gpt_oss_20b_pretrain_config"
    old, new, agreed = values(name, "0.3.1"), values(name, "0.6.2"), look_up(name, None)
    known = {setting.key: setting.value for setting in agreed.settings}
    differs = {key for key in old.keys() & new.keys() if old[key] != new[key]}
    assert differs, "the releases differ in something, or this test says nothing"
    assert not differs & known.keys()
    assert all("--assume bridge=VERSION" in agreed.unknown[key] for key in differs)
    assert all(old.get(key, value) == new.get(key, value) == value for key, value in known.items())


def test_a_build_of_a_release_has_that_releases_recipes() -> None:
    assert look_up("llama3_8b_pretrain_config", "v0.6.2+abc").origin == (
        "recipe llama3_8b_pretrain_config (Bridge 0.6.2)"
    )


@pytest.mark.parametrize("version", [None, "0.6.2"])
def test_an_unknown_name_gets_the_nearest_ones(version: str | None) -> None:
    with pytest.raises(HcpError, match=r"no recipe 'llama3_8b_pretrain_confg'.*did you mean llama3_8b_pretrain_config"):
        look_up("llama3_8b_pretrain_confg", version)


@pytest.mark.parametrize("name", ["", "a b", "x\ny", "(", "x" * 5000])
def test_a_name_that_is_no_name_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(HcpError) as refused:
        look_up(name, None)
    assert "\n" not in str(refused.value)


def test_a_recipe_of_another_release_says_so() -> None:
    """qwen3_vl_8b_finetune_config was taken out; kimi_k2_pretrain_config came with v0.3.0."""
    with pytest.raises(HcpError, match=r"is in Megatron-Bridge 0\.4\.0 to .*, not in 0\.3\.1; wanted one of 0\.3\.1"):
        look_up("qwen25_vl_7b_sft_config", "0.3.1")


def test_releases_are_in_order_and_name_the_commit_of_an_unreleased_one() -> None:
    found = releases()
    assert found[0] == "0.3.1" and "0.6.2" in found
    assert found[-1].startswith("0.7.0+")


def test_what_releases_differ_in_is_in_one_order_in_every_process() -> None:
    """A set's order would change with the process's hash seed, and with it the key that a report names."""
    unknown = list(look_up("llama3_8b_pretrain_config", None).unknown)
    assert len(unknown) > 10
    assert unknown == sorted(unknown)


def test_a_setting_that_only_newer_releases_have_is_known_where_they_leave_it_off() -> None:
    """tensor_parallel_num_weight_shards came with megatron-core 0.19; left unset it is null, as without it."""
    name = "llama3_8b_pretrain_config"
    key = "model.tensor_parallel_num_weight_shards"
    assert key not in values(name, "0.3.1")
    assert values(name, "0.6.2")[key] is None
    assert values(name, None)[key] is None


def test_a_setting_under_another_key_in_older_releases_is_known_where_the_value_is_the_same() -> None:
    """v0.3.1 has dataset.sequence_length, v0.6.2 dataset.seq_length; both 8192 in recipes/llama/llama3.py."""
    name = "llama3_8b_pretrain_config"
    assert values(name, "0.3.1")["dataset.sequence_length"] == 8192
    assert values(name, "0.6.2")["dataset.seq_length"] == 8192
    assert values(name, None)["dataset.seq_length"] == 8192


def test_what_all_recipes_of_a_model_agree_on_is_the_models() -> None:
    """meta-llama/Meta-Llama-3-70B's config.json; its recipes' layouts differ."""
    model = of_model("llama3_70b")
    assert model is not None
    known = {setting.key: setting.value for setting in model.settings}
    assert (known["model.num_layers"], known["model.hidden_size"]) == (80, 8192)
    assert (known["model.num_attention_heads"], known["model.num_query_groups"]) == (64, 8)
    assert "model.tensor_model_parallel_size" not in known


@pytest.mark.parametrize("name", ["llama3", "llama3_70", "", "a b", "(", "llama3_70b|x"])
def test_a_name_that_no_recipe_begins_with_tells_nothing(name: str) -> None:
    assert of_model(name) is None
