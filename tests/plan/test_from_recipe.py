"""What a launch leaves to its recipe is counted as the recipe has it, and what the launch says itself wins."""

from __future__ import annotations

import pytest

from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.recipes.running import KEYS, running_of
from megatron_hcp.plan.answer import judge
from megatron_hcp.plan.from_launch import layout_of
from megatron_hcp.plan.from_recipe import said_by
from megatron_hcp.plan.launch_traits import Traits, last_words, traits_in, traits_of
from megatron_hcp.plan.question import Question, question_of

GB200 = "deepseek_v3_pretrain_256gpu_gb200_fp8mx_config"


def traits(recipe: str, *words: str) -> Traits:
    launch = load_launch("", LoadOptions("bridge", words, assumes=("bridge=0.7.0",), recipe=recipe))
    said = said_by(launch, recipe)
    return traits_in(launch, said.settings, said.facts)


def asked(recipe: str, gpu: str, *words: str) -> Question:
    options = LoadOptions("bridge", words, assumes=("bridge=0.7.0",), recipe=recipe)
    return question_of("", options, {"gpu": gpu, "gpus": 256}, None, True)


def test_settings_of_helpers_that_a_recipe_calls_are_read() -> None:
    """_enable_deepseek_full_iteration_mxfp8 of perf_recipes/deepseek/common.py, Megatron-Bridge."""
    job = asked(GB200, "gb200").job
    assert (job.precision, job.overlaps_ep, job.whole_graph, job.fp32_gradients) == ("mxfp8", True, True, False)


def test_what_the_launch_says_itself_wins_over_its_recipe() -> None:
    said = traits(GB200, "comm_overlap.overlap_moe_expert_parallel_comm=false", "model.cuda_graph_impl=none")
    assert (said.overlaps_ep, said.whole_graph) == (False, False)
    assert asked(GB200, "gb200", "mixed_precision=bf16_mixed").job.precision == "bf16"


def test_a_recipe_that_the_table_lacks_leaves_its_settings_unknown() -> None:
    assert running_of("my_own_config", None) == () == running_of(GB200, "0.4.0")


def test_without_a_release_only_what_all_releases_agree_on_is_read() -> None:
    name = "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config"
    both = [set(map(str, running_of(name, release))) for release in ("0.6.0", "0.7.0")]
    assert set(map(str, running_of(name, None))) == both[0] & both[1] != set()


def test_each_setting_of_the_table_is_one_that_it_may_hold() -> None:
    for name in (GB200, "gpt_oss_120b_pretrain_64gpu_gb300_fp8mx_config"):
        keys = [setting.key for setting in running_of(name, "0.7.0")]
        assert keys == [key for key in KEYS if key in keys]


def test_a_layout_that_upstream_runs_is_legal_in_its_own_spelling() -> None:
    """GLM-5.2 at 200,000 tokens on 608 H100, a verified run of its model card: cp_comm_type allgather."""
    words = ("dataset.seq_length=200000",)
    recipe = "glm52_sft_608gpu_h100_bf16_200k_config"
    options = LoadOptions("bridge", words, assumes=("bridge=0.7.0",), recipe=recipe)
    found = question_of("", options, {"gpu": "h100", "gpus": 608}, None, True)
    layout = layout_of(found.facts, found.job.seq_length)
    assert layout.cp_comm_type == "all_gather"
    assert judge(found.model, layout, found.job, found.rates).rules == ()


def test_layers_and_experts_that_no_line_says_follow_from_what_is_said() -> None:
    model = asked("nemotron_3_super_pretrain_64gpu_gb200_bf16_config", "gb200").model
    assert (model.sizes.num_layers, model.sizes.experts, model.sizes.vocab) == (88, 512, 131072)
    found = asked("deepseek_v4_flash_pretrain_128gpu_gb200_fp8mx_config", "gb200")
    assert found.model.sizes.moe_ffn == 2048 == found.model.sizes.shared_ffn
    assert any("moe_ffn_hidden_size is 2048" in note for note in found.taken_for_granted)


@pytest.mark.parametrize("name", ["overlap_moe_expert_parallel_comm", "tp_comm_overlap"])
def test_an_absent_overlap_is_unknown(name: str) -> None:
    said = traits_of({}, last_words([("comm_overlap." + name, True)]))
    assert traits_of({}, {}).overlaps_ep is None is traits_of({}, {}).overlaps_tp
    assert said.overlaps_ep or said.overlaps_tp
