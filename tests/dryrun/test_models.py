"""Which public model stands for a launch's, and the config.json that its known sizes make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from megatron_hcp.dryrun.ask import program_words
from megatron_hcp.dryrun.models import made_config, public_name, write_cache
from megatron_hcp.launch.hf_cache import cached_config
from megatron_hcp.launch.load import LoadOptions, load_launch
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


@rows("name", ["Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen3.5-35B-A3B", "deepseek-ai/DeepSeek-V2", "mine/Qwen3-8B",
               "Qwen/Qwen3-Coder-480B-A35B-Instruct", "Qwen/Qwen3-9999B"])  # fmt: skip
def test_a_model_that_has_more_than_those_sizes_or_is_not_known_has_none(name: str) -> None:
    assert made_config(name) is None


def test_a_config_is_made_only_where_the_cache_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("actor_rollout_ref.actor.strategy=megatron", "actor_rollout_ref.model.path=Qwen/Qwen3-8B")
    launch = load_launch("", LoadOptions(dialect="verl", words=words))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    told = program_words(launch)
    assert told.made == "Qwen/Qwen3-8B" and not told.is_model_stated
    assert write_cache(str(tmp_path), told.made) == str(tmp_path / "hub")
    assert json.loads(Path(cached_config("Qwen/Qwen3-8B")).read_text()) == made_config("Qwen/Qwen3-8B")
    assert program_words(launch).made == "" and program_words(launch).is_model_stated
