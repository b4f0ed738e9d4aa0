"""A Hugging Face config.json as the facts that Megatron-Bridge makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.hf import read_model
from megatron_hcp.launch.readers.target import read_text
from support.selection import examples

BASE = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4}


def facts(tmp_path: Path, **fields: Any) -> dict[str, Any]:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**BASE, **fields}))
    return {name: fact.value for name, fact in read_model(str(path)).items()}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (
            {},
            {
                "heads": 32,
                "hidden_size": 4096,
                "num_layers": 4,
                "num_query_groups": None,
                "mla": False,
                "window_size": None,
                "softmax_type": "vanilla",
                "attention_bias": False,
                "num_experts": None,
                "mtp_layers": None,
                "hybrid_pattern": None,
                "vision": False,
                "attention_variant": None,
            },
        ),
        ({"num_key_value_heads": 8, "head_dim": 64}, {"num_query_groups": 8, "head_dim": 64}),
        ({"model_type": "falcon", "multi_query": True}, {"num_query_groups": 1}),
        ({"attention_bias": True}, {"attention_bias": False}),  # a bias of the projections
        ({"model_type": "bloom"}, {"attention_bias": True}),
        ({"alibi": True}, {"attention_bias": True}),
        # Multi-latent attention.
        (
            {
                "kv_lora_rank": 512,
                "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64,
                "v_head_dim": 128,
                "rope_scaling": {"type": "yarn"},
                "n_routed_experts": 256,
                "num_nextn_predict_layers": 1,
            },
            {
                "mla": True,
                "qk_head_dim": 128,
                "qk_pos_emb_head_dim": 64,
                "v_head_dim": 128,
                "rope_type": "yarn",
                "num_experts": 256,
                "mtp_layers": 1,
            },
        ),
        # Sliding windows: w tokens are (w - 1, 0).
        ({"sliding_window": 4096}, {"window_size": (4095, 0), "window_attn_skip_freq": None}),
        ({"sliding_window": None}, {"window_size": None}),
        ({"sliding_window": 4096, "use_sliding_window": False}, {"window_size": None}),
        (
            {"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 2},
            {"window_size": (127, 0), "window_attn_skip_freq": [1, 0, 1, 0]},
        ),
        ({"sliding_window": 128, "layer_types": ["full_attention"] * 4}, {"window_size": None}),
        ({"sliding_window": 1024, "sliding_window_pattern": 6}, {"window_size": (1023, 0), "window_attn_skip_freq": 6}),
        # Sinks.
        ({"model_type": "gpt_oss", "num_local_experts": 32}, {"softmax_type": "learnable", "num_experts": 32}),
        ({"add_swa_attention_sink_bias": True}, {"softmax_type": "learnable"}),
        # Other attention, hybrids.
        ({"index_topk": 2048, "index_n_heads": 64}, {"attention_variant": "dsa"}),
        # DeepSeek-V4 has an indexer, too; its window is no setting of Transformer Engine.
        *(
            (
                {"index_topk": 512, "sliding_window": 128, field: [0, 4, 128]},
                {"attention_variant": "dsv4_hybrid", "window_size": None},
            )
            for field in ("compress_ratios", "compress_rates")
        ),
        (
            {"linear_num_key_heads": 16, "linear_num_value_heads": 32},
            {"linear_num_key_heads": 16, "linear_num_value_heads": 32, "attention_variant": "gated_delta_net"},
        ),
        (
            {"hybrid_override_pattern": "M-M*", "mamba_num_heads": 128, "n_groups": 8, "mamba_head_dim": 64},
            {"hybrid_pattern": "M-M*", "mamba_num_heads": 128, "mamba_num_groups": 8, "mamba_head_dim": 64},
        ),
        (
            {"layer_types": ["mamba", "attention"], "mamba_n_heads": 48, "mamba_n_groups": 1, "mamba_d_head": 64},
            {"hybrid_pattern": "M*", "mamba_num_heads": 48, "mamba_num_groups": 1, "mamba_head_dim": 64},
        ),
        ({"num_experts": 0}, {"num_experts": None}),
    ],
)
def test_each_field_becomes_megatrons(tmp_path: Path, fields: dict[str, Any], wanted: dict[str, Any]) -> None:
    read = facts(tmp_path, **fields)
    assert {name: read.get(name, "absent") for name in wanted} == wanted


def test_an_absent_number_of_kv_heads_is_unknown_where_the_type_has_another_default(tmp_path: Path) -> None:
    assert "num_query_groups" not in facts(tmp_path, model_type="some_new_model")


def test_a_vision_models_text_config_is_the_model(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {
                "model_type": "qwen3_vl",
                "vision_config": {"num_attention_heads": 16, "depth": 27},
                "text_config": {**BASE, "num_key_value_heads": 4},
            },
            indent=2,
        )
    )
    read = read_model(str(path))
    assert read["heads"].value == 32 and read["num_query_groups"].value == 4 and read["vision"].value is True
    assert read["model_name"].value == "llama" and read["heads"].origin == "model"
    place = read["num_query_groups"].location
    assert place is not None and '"num_key_value_heads": 4' in path.read_text().splitlines()[place.line - 1]


def test_a_folder_stands_for_its_config(tmp_path: Path) -> None:
    facts(tmp_path)
    assert read_model(str(tmp_path))["heads"].value == 32


def test_the_launch_wins_over_the_model_and_the_model_over_defaults(root: Path) -> None:
    model = read_model(str(root / "examples" / "llama3_8b_config.json"))
    reading = read_text("--num-layers 12 --context-parallel-size 2", "x")
    launch = build_launch(reading, model=model)
    assert launch.facts["num_layers"].value == 12 and launch.facts["heads"].value == 32
    assert launch.facts["kv_heads"].value == 8 and launch.facts["head_dim"].value == 128


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "has no num_attention_heads"),
        ("[1]", "is a JSON list; wanted a model's config.json, an object with fields;"),
        ("3", "is a JSON single value; wanted a model's config.json"),
        ("{", "config.json:1:2: not JSON (Expecting property name enclosed in double quotes); wanted a model's"),
        ('{"a":', "config.json:1:6: not JSON (Expecting value); wanted a model's config.json"),
        ("[" * 100_000, "nested too deeply; wanted a model's config.json"),
        ("", "is empty; wanted a model's config.json"),
        ("\0", "is binary; wanted a model's config.json as text"),
        ('{"model": {"context_parallel_size": 2}}', "has no num_attention_heads"),
        ('{"num_attention_heads": "many", "hidden_size": 1}', "num_attention_heads is 'many'; wanted a whole number"),
        ('{"num_attention_heads": -1, "hidden_size": 1}', "wanted a whole number"),
    ],
)
def test_what_is_no_model_config_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(HcpError) as error:
        read_model(str(path))
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hidden_size": 0}, "hidden_size is 0; wanted a whole number of at least 1"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; wanted a whole number of at least 1"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0; wanted a whole number of at least 1"),
        ({"num_attention_heads": [32]}, "num_attention_heads is a list of 1; wanted one whole number"),
        (
            {"num_local_experts": 8, "num_experts_per_tok": 9},
            "num_experts_per_tok is 9, of 8 experts; wanted at most 8",
        ),
    ],
)
def test_a_model_that_cannot_be_is_one_line(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(HcpError) as error:
        facts(tmp_path, **changed)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_what_looks_odd_and_is_real_is_read(tmp_path: Path) -> None:
    assert facts(tmp_path, num_key_value_heads=[4] * int(str(BASE["num_hidden_layers"])))["num_query_groups"] == 4
    assert facts(tmp_path, num_experts=1, num_experts_per_tok=2)["num_experts"] == 1


def test_json_that_yaml_cannot_read_is_read_without_places(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**BASE, "note": "\U0001f600"}) + "\n")  # a surrogate pair
    read = read_model(str(path))
    assert read["heads"].value == 32


names = st.sampled_from(
    [
        "num_attention_heads",
        "hidden_size",
        "num_key_value_heads",
        "text_config",
        "sliding_window",
        "layer_types",
        "kv_lora_rank",
        "rope_scaling",
        "num_experts",
        "mamba_n_heads",
        "model_type",
        "num_hidden_layers",
        "hybrid_override_pattern",
        "vision_config",
        "head_dim",
        "index_topk",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 64) | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
)


@given(st.dictionaries(names, values, max_size=8))
@settings(max_examples=examples(quick=8, full=150), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_object_is_read_or_refused(tmp_path: Path, data: dict[str, Any]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**data, "num_attention_heads": data.get("num_attention_heads") or 4}))
    try:
        build_launch(read_text("--seq-length 8", "x"), model=read_model(str(path)))
    except HcpError as error:
        assert "\n" not in str(error)
