"""What the name of a public model tells of its sizes, and when it tells nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.facts.known_models import FOR_PLANS, fields_of, without_stage
from megatron_hcp.launch.hf import read_model
from megatron_hcp.launch.model_config import public_config
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.launch.recipes.table import of_model

NEMO_RL = """\
cluster: {{num_nodes: 1, gpus_per_node: 8}}
policy: {{model_name: {model}, megatron_cfg: {{enabled: true{cfg}}}{more}}}
"""
QWEN = {
    "num_layers": 48, "hidden_size": 2048, "heads": 32, "num_query_groups": 4, "head_dim": 128, "num_experts": 128,
    "ffn_hidden_size": 6144, "moe_ffn_hidden_size": 768, "moe_router_topk": 8, "gated_linear_unit": True,
    "vocab_size": 151936, "window_size": None, "window_attn_skip_freq": None, "softmax_type": "vanilla",
    "moe_shared_expert_intermediate_size": None, "attention_variant": None, "hybrid_pattern": None,
}  # fmt: skip
"""As the model's config.json has them, by the names of our facts."""


def lines() -> list[list[str]]:
    text = (Path(__file__).parents[2] / "src/megatron_hcp/launch/facts/known_models.txt").read_text(encoding="utf-8")
    return [line.split() for line in text.splitlines() if not line.startswith("#")]


def nemo_rl(model: str = "Qwen/Qwen3-30B-A3B", cfg: str = "", more: str = "") -> Launch:
    return build_launch(read_text(NEMO_RL.format(model=model, cfg=cfg, more=more), "x.yaml"))


def verl(*words: str) -> Launch:
    command = "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=megatron trainer.nnodes=1"
    return build_launch(read_text(f"#!/bin/bash\n{command} {' '.join(words)}\n", "x.sh"))


def named(launch: Launch) -> dict[str, Any]:
    return {name: fact.value for name, fact in launch.facts.items() if fact.origin == "model-name"}


@pytest.mark.parametrize(
    "launch",
    [
        nemo_rl(),
        verl("actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B"),
        build_launch(read_text("#!/bin/bash\nmegatron sft --model Qwen/Qwen3-30B-A3B --tuner_type full\n", "x.sh")),
    ],
    ids=lambda launch: str(launch.dialect),
)
def test_the_name_of_a_public_model_tells_its_sizes(launch: Launch) -> None:
    assert {name: launch.facts[name].value for name in QWEN} == QWEN
    assert named(launch) == {**QWEN, "mla": False}
    assert launch.facts["kv_heads"].value == 4
    assert launch.facts["num_experts"].location == launch.facts["model_name"].location


@pytest.mark.parametrize(
    "model",
    [
        "Qwen3-30B-A3B",
        "qwen/qwen3-30b-a3b",
        "/models/Qwen/Qwen3-30B-A3B",
        "./Qwen/Qwen3-30B-A3B",
        "Qwen/Qwen3-30B-A3B-Mine",
        "Qwen/Qwen3-30B",
        "me/Qwen3-30B-A3B",
        '"Qwen/Qwen3-30B-A3B Qwen3MoEModelProvider30B_A3B"',
        '"#"',
    ],
)
def test_a_name_that_is_not_exactly_a_public_models_tells_nothing(model: str) -> None:
    launch = nemo_rl(model)
    assert named(launch) == {} and "num_experts" not in launch.facts


def test_the_launchs_own_word_and_the_models_config_win(tmp_path: Path) -> None:
    shorter = nemo_rl(cfg=", model_overrides: {num_layers: 4}")
    assert (shorter.facts["num_layers"].value, shorter.facts["num_layers"].origin) == (4, "launch")
    assert shorter.facts["num_experts"].value == 128
    (tmp_path / "config.json").write_text(
        json.dumps({"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2})
    )
    reading = read_text(NEMO_RL.format(model="Qwen/Qwen3-30B-A3B", cfg="", more=""), "x.yaml")
    mine = build_launch(reading, model=read_model(str(tmp_path)))
    assert named(mine) == {} and mine.facts["num_layers"].value == 4 and mine.facts["num_experts"].value is None


def test_an_unreadable_word_leaves_its_fact_unknown() -> None:
    layers = "actor_rollout_ref.actor.megatron.override_transformer_config.num_layers=$(wc -l < x)"
    launch = verl("actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B", layers)
    assert "num_layers" in launch.unknown and "num_layers" not in launch.facts
    assert launch.facts["num_experts"].value == 128


@pytest.mark.parametrize(
    ("more", "is_told"),
    [
        ("", True),
        (", hf_config_overrides: {}", True),
        (", hf_config_overrides: null", True),
        (", hf_config_overrides: {max_position_embeddings: 65536}", True),
        (", hf_config_overrides: {num_hidden_layers: 4}", False),
        (", hf_config_overrides: {text_config: {num_experts: 8}}", False),
        (", hf_config_overrides: '${oc.env:OVERRIDES}'", False),
    ],
)
def test_a_launch_that_changes_the_models_config_is_asked_for_it(more: str, is_told: bool) -> None:
    assert bool(named(nemo_rl(more=more))) is is_told


@pytest.mark.parametrize(
    ("word", "is_told"),
    [
        ("actor_rollout_ref.model.hf_config_path=/configs/small", False),
        ("+actor_rollout_ref.model.override_config.model_config.num_key_value_heads=8", False),
        ("+actor_rollout_ref.model.override_config.model_config.max_position_embeddings=65536", True),
        ("actor_rollout_ref.model.override_config=$(cat overrides)", False),
    ],
)
def test_so_is_one_of_verl(word: str, is_told: bool) -> None:
    assert bool(named(verl("actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B", word))) is is_told


def test_every_line_names_one_model_and_sizes_that_a_model_can_have() -> None:
    rows = lines()
    index = index_of("bridge")
    assert len({row[0] for row in rows}) == len(rows)
    for model, source, *_ in rows:
        assert model.count("/") == 1 and source and fields_of(model)
        fields = {field: value for field, value in fields_of(model).items() if field not in FOR_PLANS}
        assert all(f"model.{field}" in index for field in fields), model
        heads, groups = fields.get("num_attention_heads"), fields.get("num_query_groups")
        assert not groups or heads % groups == 0, model
        pattern = fields.pop("moe_layer_freq", 1)
        layers = pattern if isinstance(pattern, list) else [pattern]
        assert layers == [1] or (set(layers) <= {0, 1} and len(layers) == fields["num_layers"]), model
        assert all(value is None or isinstance(value, bool | str) or value > 0 for value in fields.values()), model


def test_every_line_is_read_wherever_a_launch_names_its_model() -> None:
    assert all(named(nemo_rl(model)) for model, *_ in lines())


def test_a_line_that_names_another_model_has_that_ones_sizes() -> None:
    """One step: the other line has sizes of its own."""
    own = {model for model, source, *_ in lines() if not source.startswith("=")}
    others = {model: source[1:] for model, source, *_ in lines() if source.startswith("=")}
    assert own.issuperset(others.values())
    assert len(others) > 30 and all(fields_of(model) == fields_of(other) for model, other in others.items())


def test_all_stages_and_precisions_of_a_model_have_the_same_sizes() -> None:
    """The evidence for the rule: models that the table has at several stages, each from a source of its own."""
    stages: dict[str, list[str]] = {}
    for model, source, *_ in lines():
        if not source.startswith("="):
            stages.setdefault(without_stage(model), []).append(model)
    several = [models for models in stages.values() if len(models) > 1]
    assert len(several) >= 12
    for first, *rest in several:
        for other in rest:
            one, two = ({**fields_of(model)} for model in (first, other))
            for fields in (one, two):
                fields["kv_channels"] = fields.get("kv_channels") or one["hidden_size"] // one["num_attention_heads"]
            assert all(one[field] == two[field] for field in one.keys() & two.keys()), (first, other)


@pytest.mark.parametrize(
    ("model", "same"),
    [
        ("Qwen/Qwen3-32B-Base", "Qwen/Qwen3-32B"),
        ("Qwen/Qwen3.5-4B-Base", "Qwen/Qwen3.5-4B"),
        ("Qwen/Qwen3-4B-Thinking-2507-FP8", "Qwen/Qwen3-4B"),
        ("Qwen/Qwen3-32B-Mine", ""),
        ("Qwen/Qwen3-Base", ""),
        ("-Base", ""),
    ],
)
def test_a_stage_that_no_line_names_has_the_models_sizes(model: str, same: str) -> None:
    assert fields_of(model) == (fields_of(same) if same else {})


def test_a_public_models_name_is_as_good_as_its_config_for_every_command(
    hcp: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    config = {
        "num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936, "hidden_act": "silu",
    }  # fmt: skip
    own = tmp_path / "config.json"
    own.write_text(json.dumps(config | {"_name_or_path": "Qwen/Qwen3-8B"}))
    job = ["--gpus", "16", "--gpu", "h100", "--seq-length", "32768", "--global-batch", "64"]
    for before, after in ((["plan", "--model"], job), (["support"], [])):
        by_name, by_file = (hcp(*before, name, *after) for name in ("Qwen/Qwen3-8B", str(own)))
        assert by_name.stdout == by_file.stdout.replace(str(own), "Qwen/Qwen3-8B")
        assert (by_name.returncode, by_name.stderr) == (by_file.returncode, "")


@pytest.mark.parametrize("model", sorted(row[0] for row in lines()))
def test_what_a_name_tells_as_a_config_is_what_it_tells_in_a_launch(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    fields = fields_of(model)
    try:
        public_config(model)
    except HcpError as error:
        lacking = str(error).partition("has no ")[2].partition(" of it")[0].split(", ")
        assert lacking[0] and not set(lacking) & fields.keys()
        return
    facts, index = read_model(model), index_of("bridge")
    assert not {"vision", "mtp_layers"} & facts.keys()
    for field, value in fields.items():
        if field in FOR_PLANS:
            continue
        found = facts.get(index[f"model.{field}"].fact)
        wanted = tuple(value) if isinstance(value, list) else value
        assert field == "mtp_num_layers" or (found.value if found else None) == wanted, field


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        # layers, heads, key and value heads, experts, as the model cards have them
        ("ZhipuAI/GLM-4.5-Air", (46, 96, 8, 128)),
        ("LLM-Research/Llama-4-Scout-17B-16E-Instruct", (48, 40, 8, 16)),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", (94, 64, 4, 128)),
        ("Qwen/Qwen3-8B-Base", (36, 32, 8, None)),
        ("Qwen/Qwen2.5-VL-72B-Instruct", (80, 64, 8, None)),
        ("OpenGVLab/InternVL3_5-GPT-OSS-20B-A4B-Preview", (24, 64, 8, 32)),
    ],
)
def test_variants_and_names_of_modelscope_tell_their_sizes_to_ms_swift(model: str, sizes: tuple[int | None]) -> None:
    launch = build_launch(read_text(f"#!/bin/bash\nmegatron sft --model {model} --tuner_type full\n", "x.sh"))
    assert tuple(launch.facts[name].value for name in ("num_layers", "heads", "kv_heads", "num_experts")) == sizes


@pytest.mark.parametrize("model", ["qwen3_30b_a3b", "deepseek_v3", "gpt_oss_120b", "llama31_405b", "kimi_k2"])
def test_windows_sinks_and_shared_experts_are_those_of_bridges_recipes(model: str) -> None:
    recipes = of_model(model)
    assert recipes is not None and recipes.model
    fields, seen = fields_of(recipes.model), 0
    for setting in recipes.settings:
        field = setting.key.removeprefix("model.")
        if field in fields and field in (
            "window_attn_skip_freq",
            "softmax_type",
            "moe_shared_expert_intermediate_size",
        ):
            assert fields[field] == setting.value, field
            seen += 1
    assert seen == 3


def test_show_says_where_such_sizes_come_from(hcp: Any, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(NEMO_RL.format(model="Qwen/Qwen3-30B-A3B", cfg="", more=""))
    shown = hcp("show", str(tmp_path / "x.yaml")).stdout
    assert "num_experts" in shown and "128  [model-name]  policy.model_name" in shown
    assert "note: [model-name] is what the public model Qwen/Qwen3-30B-A3B has; --model config.json" in shown
    (tmp_path / "x.yaml").write_text(NEMO_RL.format(model="me/mine", cfg="", more=""))
    assert "model-name" not in hcp("show", str(tmp_path / "x.yaml")).stdout


def test_every_listed_model_can_be_named_by_a_launch() -> None:
    names = [words[0] for words in lines()]
    unnamed = [name for name in names if "/" in name and not named(verl(f"actor_rollout_ref.model.path={name}"))]
    assert len(names) > 50 and unnamed == []


@pytest.mark.parametrize("name", ["nvidia/Nemotron-Nano-9B-v2", "nvidia/NVIDIA-Nemotron-Nano-9B-v2-Base"])
def test_a_public_model_has_its_sizes_with_and_without_its_owner_in_its_name(name: str) -> None:
    """Sizes of Megatron-LM's examples/post_training/modelopt/conf/nvidia/NVIDIA-Nemotron-Nano-9B-v2.sh."""
    config = public_config(name)
    assert config is not None
    assert (config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]) == (56, 4480, 131072)
