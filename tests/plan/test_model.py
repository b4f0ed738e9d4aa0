"""What a plan takes from a config.json: published models by their own sizes, and configs that make no model."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.plan.layout import Layout
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.weights import parameters

LLAMA3_70B = {
    "model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
    "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256, "hidden_act": "silu",
    "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
    "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "vocab_size": 129280, "hidden_act": "silu", "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_30B = {
    "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 128,
    "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936,
    "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
QWEN2_7B = {
    "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28,
    "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "hidden_act": "silu",
    "tie_word_embeddings": False, "use_sliding_window": False, "sliding_window": 131072,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "published"),
    [
        # What the model cards' safetensors index counts; V3 without the layer of multi-token prediction, and its
        # 58 x 256 biases of the router, which are no parameters in megatron-core.
        (LLAMA3_70B, 70_553_706_496),
        ({**DEEPSEEK_V3, "num_nextn_predict_layers": 0}, 671_026_419_200 - 58 * 256),
        (QWEN3_30B, 30_532_122_624),
        (QWEN2_7B, 7_615_616_512),
    ],
)
def test_published_models_have_their_published_parameters(config: dict[str, Any], published: int) -> None:
    assert sum(parameters(plan_model(config), Layout(), 0)) == published


def test_the_language_model_of_a_multimodal_config_is_read_and_the_rest_is_named() -> None:
    model = plan_model({"model_type": "qwen2_5_vl", "text_config": LLAMA3_70B, "vision_config": {"depth": 32}})
    assert model.sizes.num_layers == 80
    assert model.kind_unknown == ("a vision encoder",)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"layer_types": ["linear_attention", "full_attention"] * 40}, "linear attention"),
        ({"index_topk": 2048}, "sparse attention with an indexer (DSA)"),
        ({"hybrid_override_pattern": "M-M*"}, "layers described by a pattern"),
        ({"mamba_num_heads": 64}, "Mamba layers"),
        # As Llama 4 Scout, DeepSeek-V4, Llama-3.3-Nemotron and Gemma 4 write them.
        ({"attention_chunk_size": 8192}, "chunked attention"),
        ({"compress_ratios": [128, 4]}, "attention to compressed keys"),
        ({"hc_mult": 4}, "hyper-connections"),
        ({"block_configs": [{"ffn": {"ffn_mult": 2.6}}]}, "layers of different widths"),
        ({"global_head_dim": 512}, "heads of another width in some layers"),
    ],
)
def test_what_no_formula_covers_is_said(fields: dict[str, Any], words: str) -> None:
    assert words in plan_model({**LLAMA3_70B, **fields}).kind_unknown
    assert plan_model(LLAMA3_70B).kind_unknown == ()


def test_which_layers_have_experts() -> None:
    dense_first = plan_model(DEEPSEEK_V3).is_moe
    assert dense_first.index(True) == 3 and all(dense_first[3:])
    # config.json's step takes the last layer of each group, Megatron's moe_layer_freq the first.
    small = {**QWEN3_30B, "num_hidden_layers": 4}
    assert plan_model({**small, "decoder_sparse_step": 2}).is_moe == (False, True, False, True)
    assert plan_model({**small, "mlp_only_layers": [1]}).is_moe == (True, False, True, True)
    del small["decoder_sparse_step"]
    assert plan_model({**small, "moe_layer_freq": 2}).is_moe == (True, False, True, False)
    assert plan_model({**small, "moe_layer_freq": [0, 1, 1, 1]}).is_moe == (False, True, True, True)


def test_the_layers_of_a_hybrid_model_that_have_experts_are_those_of_its_pattern() -> None:
    """Nemotron 3 Nano has experts in 23 of its 52 layers; Ultra's config.json has a list of kinds, and no number."""
    pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    nano = plan_model({**QWEN3_30B, "num_hidden_layers": 52, "hybrid_override_pattern": pattern})
    assert sum(nano.is_moe) == 23 and nano.is_moe[1] and not nano.is_moe[0]
    listed = {key: value for key, value in QWEN3_30B.items() if key != "num_hidden_layers"}
    ultra = plan_model({**listed, "layers_block_type": ["mamba", "moe", "attention", "moe"]})
    assert ultra.is_moe == (False, True, False, True) and "Mamba layers" in ultra.kind_unknown


def test_windows_of_some_layers_are_no_pattern_of_mamba_layers() -> None:
    """MiMo-V2-Flash: a number for each layer, 1 where it has a window; and sinks in those."""
    fields = {"sliding_window": 128, "hybrid_layer_pattern": [0, 1, 1, 1] * 12, "add_swa_attention_sink_bias": True}
    model = plan_model({**QWEN3_30B, **fields})
    assert len(model.sizes.windows) == 36 and model.sinks
    assert model.kind_unknown == () and not model.mixers.pattern


def test_facts_by_name_give_the_model_of_the_config() -> None:
    facts = {
        "num_layers": 80, "hidden_size": 8192, "heads": 64, "kv_heads": 8, "ffn_hidden_size": 28672,
        "vocab_size": 128256, "gated_linear_unit": True, "untie_embeddings_and_output_weights": True,
    }  # fmt: skip
    assert parameters(plan_model(facts), Layout(), 0) == parameters(plan_model(LLAMA3_70B), Layout(), 0)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"num_experts": 4, "num_experts_per_tok": 8}, "found 8 experts for a token of 4"),
        ({"intermediate_size": 0}, "found intermediate_size=0; wanted 1 or more"),
        ({"head_dim": 0}, "found head_dim=0; wanted 1 or more"),
        ({"hidden_size": 32}, "found 64 heads in a hidden size of 32"),
        ({"vocab_size": None}, "vocab_size or padded_vocab_size is missing"),
        ({"num_hidden_layers": 1_000_000}, "found 1000000 layers"),
        ({"num_hidden_layers": 1025}, "found 1025 layers; wanted at most 1024"),
        ({"num_nextn_predict_layers": 17}, "found 17 prediction layers; wanted at most 16"),
        ({"num_experts": 1025, "num_experts_per_tok": 8}, "found 1025 experts; wanted at most 1024"),
        ({"sliding_window": "4096"}, "found sliding_window='4096'"),
        ({"num_attention_heads": None}, "num_attention_heads"),
        ({"hidden_size": 1.5}, "found hidden_size=1.5"),
        ({"num_key_value_heads": 7}, "found 7 KV heads for 64 heads"),
    ],
)
def test_what_makes_no_model_is_refused_in_one_line(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(HcpError) as refused:
        plan_model({**LLAMA3_70B, **fields})
    assert says in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "fields", [{"sliding_window": "4"}, {"intermediate_size": 0}, {"vocab_size": None}, {"hidden_size": 32}]
)
def test_a_refusal_says_what_was_wanted_and_what_to_do(fields: dict[str, Any]) -> None:
    with pytest.raises(HcpError) as refused:
        plan_model({**LLAMA3_70B, **fields})
    assert refused.value.wanted and "--model" in refused.value.do


def test_the_largest_numbers_of_layers_make_a_model() -> None:
    model = plan_model({**LLAMA3_70B, "num_hidden_layers": 1024, "num_nextn_predict_layers": 16})
    assert (model.sizes.num_layers, model.mtp) == (1024, 16)


def test_a_long_name_is_shown_by_its_end() -> None:
    assert plan_model(LLAMA3_70B, "/data/" + "x" * 200 + "/llama").name.endswith("x/llama")
    assert len(plan_model({**LLAMA3_70B, "_name_or_path": "n" * 61}).name) == 60
    assert plan_model(LLAMA3_70B, "n" * 60).name == "n" * 60
