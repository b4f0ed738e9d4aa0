"""Which public model stands for a launch's, and the config.json that its known sizes make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from megatron_hcp.dryrun.models import made_config, public_name, write_cache
from megatron_hcp.launch.hf_cache import cached_config, is_cached
from support.rows import rows


@rows("path, name", [
    ("/models/Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
    ("/models/Qwen3-235B-A22B-Instruct-2507", "Qwen/Qwen3-235B-A22B-Instruct-2507"),
    ("/models/mine/Qwen3-8B", "Qwen/Qwen3-8B"),
    ("/models/mine/qwen3-8b-tuned", ""),
    ("/models/..", ""),
    ("~", ""),
])  # fmt: skip
def test_a_folder_is_that_of_the_public_model_whose_name_ends_so(path: str, name: str) -> None:
    assert public_name(path) == name


QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288,
    "vocab_size": 151936, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "hidden_act": "silu",
}  # fmt: skip
"""As the model's own config.json on the Hub has them."""


MOONLIGHT = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 27,
    "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 11264,
    "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
    "first_k_dense_replace": 1, "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 163840, "tie_word_embeddings": False,
}  # fmt: skip
"""As the model's own config.json on the Hub has them."""


def test_a_model_with_routed_experts_has_them_by_its_own_names() -> None:
    made = made_config("moonshotai/Moonlight-16B-A3B-Instruct")
    assert made is not None and {name: made[name] for name in MOONLIGHT} == MOONLIGHT


def test_the_sizes_of_a_config_are_those_that_the_models_own_has() -> None:
    assert made_config("Qwen/Qwen3-8B") == {**QWEN3_8B, "_name_or_path": "Qwen/Qwen3-8B"}


@rows("name, architecture, is_tied", [
    ("Qwen/Qwen2.5-Math-7B", "Qwen2ForCausalLM", False),
    ("Qwen/Qwen3-0.6B", "Qwen3ForCausalLM", True),
    ("Qwen/Qwen3-30B-A3B-Base", "Qwen3MoeForCausalLM", False),
    ("meta-llama/Llama-3.2-1B", "LlamaForCausalLM", True),
    ("meta-llama/Meta-Llama-3-8B", "LlamaForCausalLM", False),
])  # fmt: skip
def test_a_family_has_its_class_and_its_small_dense_models_tie_embeddings(
    name: str, architecture: str, is_tied: bool
) -> None:
    made = made_config(name)
    assert made is not None and (made["architectures"], made["tie_word_embeddings"]) == ([architecture], is_tied)


@rows("name, section, sizes", [
    ("google/gemma-3-4b-it", "text_config", {"num_hidden_layers": 34, "model_type": "gemma3_text"}),
    ("mistralai/Ministral-3-8B-Instruct-2512", "text_config", {"hidden_size": 4096, "model_type": "ministral3"}),
    ("Qwen/Qwen2-Audio-7B-Instruct", "text_config", {}),
    ("google/gemma-4-E4B-it", "text_config", {}),
    ("Qwen/Qwen3-Omni-30B-A3B-Instruct", "thinker_config", {}),
    ("nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16", "llm_config", {"vocab_size": 131072, "num_attention_heads": 40}),
])  # fmt: skip
def test_a_model_of_several_parts_has_its_sizes_in_its_text_part(
    name: str, section: str, sizes: dict[str, object]
) -> None:
    made = made_config(name)
    assert made is not None and sizes.items() <= made[section].items()
    assert not {"hidden_size", "num_hidden_layers"} & made.keys()


def test_where_the_table_has_a_part_of_the_sizes_the_others_are_the_classs() -> None:
    """Of K-EXAONE 2.0, Bridge's recipe has the layers, the experts and four layers for multi-token prediction."""
    made = made_config("LGAI-EXAONE/K-EXAONE-2.0-750B-A37B")
    assert made is not None and (made["num_hidden_layers"], made["num_experts"]) == (78, 256)
    assert made["num_nextn_predict_layers"] == 4 and "hidden_size" not in made


@rows("name", ["Qwen/Qwen3-VL-8B-Instruct", "deepseek-ai/DeepSeek-V2", "mine/Qwen3-8B",
               "Qwen/Qwen3-Coder-480B-A35B-Instruct", "Qwen/Qwen3-9999B"])  # fmt: skip
def test_a_model_that_has_more_than_those_sizes_or_is_not_known_has_none(name: str) -> None:
    assert made_config(name) is None


NUMBERS = {"rms_norm_eps": 1e-06, "time_step_limit": [0.0, float("inf")]}
"""Numbers that JSON writes as 1e-06 and Infinity, and YAML reads as text."""


def test_a_config_is_made_only_where_the_cache_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, run = tmp_path / "theirs", tmp_path / "run"
    for name in ("Qwen--Qwen3-8B", "nvidia--Nemotron-FP8"):
        (snapshot := theirs / f"models--{name}/snapshots/1").mkdir(parents=True)
        (theirs / f"models--{name}/refs").mkdir()
        (theirs / f"models--{name}/refs/main").write_text("1")
        (snapshot / "config.json").write_text(json.dumps({"its": name, "quantization_config": {}, **NUMBERS}))
    run.mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(theirs))
    asked = "Qwen/Qwen3-8B-Base nvidia/Nemotron-BF16 mirror/Nemotron mirror/Qwen3-8B".split()
    hub = write_cache(str(run), [f"x={name}" for name in (*asked, "mine/Own")])
    monkeypatch.setenv("HF_HUB_CACHE", hub)
    names = ("Qwen/Qwen3-8B", "Qwen/Qwen3-4B", *asked)
    config = {name: json.loads(Path(cached_config(name)).read_text()) for name in names}
    assert config["Qwen/Qwen3-8B"]["its"] == "Qwen--Qwen3-8B" and Path(hub, "models--Qwen--Qwen3-8B").is_symlink()
    assert config["Qwen/Qwen3-4B"] == made_config("Qwen/Qwen3-4B")
    assert config["Qwen/Qwen3-8B-Base"] == made_config("Qwen/Qwen3-8B-Base")
    assert config["nvidia/Nemotron-BF16"] == config["mirror/Nemotron"] == {"its": "nvidia--Nemotron-FP8", **NUMBERS}
    assert config["mirror/Qwen3-8B"] == made_config("Qwen/Qwen3-8B")
    assert not is_cached("mine/Own")


def test_without_a_cache_all_of_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    monkeypatch.setenv("HF_HUB_CACHE", write_cache(str(tmp_path), ()))
    assert json.loads(Path(cached_config("Qwen/Qwen3-8B")).read_text()) == made_config("Qwen/Qwen3-8B")
