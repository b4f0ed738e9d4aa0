"""A model's sizes out of config.json, Megatron's arguments and facts; its work against published counts."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.cost.cp_cost import CpTraffic, Link, bytes_per_token, check_comm_type
from megatron_hcp.cost.gpus import GPUS, gpu_named
from megatron_hcp.cost.model_sizes import ModelSizes, model_sizes
from megatron_hcp.dcp import Cost
from megatron_hcp.ground.errors import HcpError

LLAMA_3_8B = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu",
}  # fmt: skip
MIXTRAL_8X7B = {**LLAMA_3_8B, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN3_30B_A3B = {
    "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
    "vocab_size": 151936,
}  # fmt: skip
DEEPSEEK_V3 = {
    "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128, "num_key_value_heads": 128,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "first_k_dense_replace": 3,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280, "moe_layer_freq": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    "config, parameters, embedding",
    [(LLAMA_3_8B, 8.03e9, 128256 * 4096), (MIXTRAL_8X7B, 12.9e9, 32000 * 4096),
     (QWEN3_30B_A3B, 3.3e9, 151936 * 2048), (DEEPSEEK_V3, 37e9, 129280 * 7168)],
    ids=["llama 3 8b", "mixtral 8x7b", "qwen3 30b-a3b", "deepseek v3"],
)  # fmt: skip
def test_the_linear_work_is_two_operations_for_each_active_parameter(
    config: dict[str, Any], parameters: float, embedding: int
) -> None:
    """Published counts of active parameters; the embedding is a look-up and computes nothing."""
    assert model_sizes(config).linear_flops / 2 + embedding == pytest.approx(parameters, rel=0.02)


def test_megatrons_arguments_say_the_same_as_the_config() -> None:
    arguments = {
        "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_query_groups": 8, "kv_channels": 128,
        "group_query_attention": True, "ffn_hidden_size": 14336, "padded_vocab_size": 128256, "swiglu": True,
        "multi_latent_attention": False, "kv_lora_rank": 32, "q_lora_rank": None, "num_experts": None,
        "moe_router_topk": 2, "moe_layer_freq": 1, "window_size": None,
    }  # fmt: skip
    assert model_sizes(arguments) == model_sizes(LLAMA_3_8B)


def test_without_grouped_queries_megatrons_one_group_means_nothing() -> None:
    values = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 8, "num_query_groups": 1}
    assert model_sizes({**values, "group_query_attention": False}).kv_heads == 8
    assert model_sizes({**values, "group_query_attention": True}).kv_heads == 1


def test_latent_attention_sends_a_key_and_a_value_for_each_head() -> None:
    sizes = model_sizes(DEEPSEEK_V3)
    assert (sizes.kv_heads, sizes.qk_head_dim, sizes.v_head_dim) == (128, 192, 128)
    assert bytes_per_token(sizes.heads, sizes.kv_heads, 192, 128, tp=4).kv == 32 * 2 * (192 + 128)


@pytest.mark.parametrize(
    "values, windows",
    [
        ({"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 16}, (128,) * 16),
        ({"sliding_window": 4096, "use_sliding_window": False}, ()), ({"sliding_window": 4096}, (4096,) * 32),
        ({"window_size": (127, 0), "window_attn_skip_freq": 2}, (128,) * 16), ({"sliding_window": None}, ()),
    ],
)  # fmt: skip
def test_windows_are_counted_by_layer(values: dict[str, Any], windows: tuple[int, ...]) -> None:
    assert model_sizes({**LLAMA_3_8B, **values}).windows == windows


def test_the_language_model_of_a_multimodal_config_is_read() -> None:
    assert model_sizes({"text_config": LLAMA_3_8B, "vision_config": {"hidden_size": 9}}) == model_sizes(LLAMA_3_8B)


@pytest.mark.parametrize(
    "values, words",
    [({}, "num_layers or num_hidden_layers is missing"), ({**LLAMA_3_8B, "hidden_size": "4096"}, "hidden_size='4096'"),
     ({**LLAMA_3_8B, "num_attention_heads": True}, "num_attention_heads=True")],
)  # fmt: skip
def test_what_is_no_model_is_named(values: dict[str, Any], words: str) -> None:
    with pytest.raises(HcpError, match=words):
        model_sizes(values)


def test_a_window_leaves_out_what_lies_outside() -> None:
    """At 3000 tokens a window of 1000 leaves the pairs of the last 2000 rows but 1000 each: 3000² − 2000² of 3000²."""
    sizes = model_sizes({**LLAMA_3_8B, "sliding_window": 1000})
    cost, full = Cost.from_model(sizes), Cost.from_model(sizes._replace(windows=()))
    assert cost.attention(3000) / full.attention(3000) == pytest.approx(5 / 9)
    assert cost.attention(1000) == pytest.approx(full.attention(1000))


def test_work_is_divided_by_the_ranks_that_share_the_model() -> None:
    sizes = model_sizes(LLAMA_3_8B)
    one, many = Cost.from_model(sizes), Cost.from_model(sizes, tp=2, pp=4)
    assert one.work(5000) == pytest.approx(8 * many.work(5000))
    assert many.machine.traffic.ranks_per_node == 4
    facts = {**LLAMA_3_8B, "tp": 2, "pp": 4, "cp_comm_type": "a2a"}
    assert Cost.from_facts(facts) == Cost.from_model(sizes, tp=2, pp=4, cp_comm_type="a2a")


FORMULA = [(32, 3500), (4, 440)]
"""KV heads of 32, and tokens per rank from which NVLink's ring is hidden at 600 TFLOP/s, 340 GB/s: formulas.md, 3."""


@pytest.mark.parametrize("kv_heads, threshold", FORMULA)
def test_a_ring_is_hidden_from_the_length_that_the_formula_says(kv_heads: int, threshold: int) -> None:
    """Forward only: s / c >= 2 * (nkv / nq) * F / B. The passes are taken out of the link again."""
    each = bytes_per_token(32, kv_heads, 128, 128)
    link = Link(each.kv / 340e9, 0.0)
    ring = CpTraffic("p2p", link, link, 8)

    def exposed(tokens: int, size: int = 4) -> float:
        attention_s = (tokens * size) ** 2 * 32 * 256 / 600e12 / size
        return ring.exposed_s(size, tokens, attention_s, False)

    assert exposed(int(threshold * 1.03)) == 0.0
    assert exposed(int(threshold * 0.95)) > 0.0


def test_an_all_to_all_sends_less_than_a_ring_the_more_ranks_there_are() -> None:
    """Forward volumes, p2p over a2a: c * nkv / (nq + nkv); equal at c = 1 + nq / nkv (formulas.md, 3)."""
    each = bytes_per_token(32, 8, 128, 128)
    link = Link(each.kv, each.kv + each.qo)
    for size in (2, 5, 8):
        ring = CpTraffic("all_gather", link, link, 64).exposed_s(size, 1, 0.0, False)
        a2a = CpTraffic("a2a", link, link, 64).exposed_s(size, 1, 0.0, False)
        assert ring / a2a == pytest.approx(size * 8 / (32 + 8))


def test_levels_divide_the_ring_by_the_inner_ranks() -> None:
    link = Link(1.0, 0.0)
    assert CpTraffic("p2p", link, link, 8).exposed_s(16, 1, 0.0, True) == 15
    assert CpTraffic("a2a+p2p", link, link, 8, inner=8).exposed_s(16, 1, 0.0, True) == 1
    assert CpTraffic("a2a+p2p", link, link, 8, inner=8).exposed_s(4, 1, 0.0, False) == 0


def test_unknown_gpus_and_types_are_named_with_the_known_ones() -> None:
    assert {gpu_named(name.upper()).name for name in GPUS} == set(GPUS)
    with pytest.raises(HcpError, match="wanted one of a100, h100"):
        gpu_named("tpu")
    with pytest.raises(HcpError, match="cp_comm_type: found 'ring'"):
        check_comm_type("ring", None)
    with pytest.raises(HcpError, match="hierarchical_context_parallel_sizes"):
        Cost.from_model(ModelSizes(1, 8, 1, 1, 8, 8, 8, 1, True), cp_comm_type="a2a+p2p")


def test_the_width_of_latent_heads_is_not_counted_twice_where_a_config_says_it_whole_as_well() -> None:
    """GLM-5's config.json: qk_head_dim is the sum of qk_nope_head_dim and qk_rope_head_dim."""
    config = {
        "num_hidden_layers": 78, "hidden_size": 6144, "num_attention_heads": 64, "vocab_size": 154880,
        "kv_lora_rank": 512, "qk_head_dim": 256, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
    }  # fmt: skip
    assert model_sizes(config).qk_head_dim == 192 + 64
