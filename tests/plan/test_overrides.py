"""The overrides of a plan, pasted behind a launch of the model or taken alone: `hcp check` finds no error in them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.plan.answer import judge, plan_job
from megatron_hcp.plan.constants import rates_for
from megatron_hcp.plan.from_launch import job_of, layout_of, with_own_split
from megatron_hcp.plan.launch_traits import traits_in
from megatron_hcp.plan.layout import Layout, PlanJob, parse_layout
from megatron_hcp.plan.legal import RECIPES, forbidden
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.overrides import FRAMEWORKS, WITHOUT_LEVELS, overrides
from megatron_hcp.plan.running import as_run_by
from megatron_hcp.rules.registry import RULES
from support.rows import rows

if TYPE_CHECKING:
    from megatron_hcp.launch.fact import Dialect

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
    "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256, "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}  # fmt: skip
QWEN_MOE = {
    "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 128,
    "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
    "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "vocab_size": 129280, "num_nextn_predict_layers": 1, "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "num_attention_heads": 64, "head_dim": 64,
    "num_key_value_heads": 8, "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4,
    "vocab_size": 201088, "sliding_window": 128, "max_position_embeddings": 131072, "tie_word_embeddings": False,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip
DSA = {**DEEPSEEK, "model_type": "glm_moe_dsa", "index_topk": 2048, "index_n_heads": 32}
MAMBA = {
    "model_type": "nemotron_h", "num_hidden_layers": 8, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 16384, "vocab_size": 131072, "max_position_embeddings": 8192,
    "hybrid_override_pattern": "M-M*M-M*", "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8,
    "tie_word_embeddings": False,
}  # fmt: skip
DELTA_NET = {
    **QWEN_MOE, "model_type": "qwen3_next", "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 12,
}  # fmt: skip

H100 = gpu_named("h100")
CASES: list[tuple[dict[str, Any], str, int, dict[str, Any]]] = [
    (LLAMA, "tp=8", 8192, {}),
    (LLAMA, "tp=8 cp=8", 262144, {}),
    (LLAMA, "tp=4 pp=2 vp=41 cp=8 recompute=full", 1 << 20, {}),
    (LLAMA, "tp=4 pp=4 vp=5 cp=2 mbs=2 recompute=selective", 65536, {}),
    (LLAMA, "tp=2 cp=32 cp_comm_type=a2a+p2p hcp_sizes=4,8", 262144, {}),
    (LLAMA, "tp=2 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2", 65536, {"packed": True}),
    (LLAMA, "tp=2 cp=4 cp_comm_type=a2a", 131072, {"precision": "mxfp8"}),
    (LLAMA, "tp=2 cp=16 cp_comm_type=all_gather", 131072, {"precision": "fp8"}),
    (QWEN_MOE, "cp=8 ep=32", 131072, {}),
    (QWEN_MOE, "tp=4 cp=4 pp=4 vp=3 ep=8 etp=1", 32768, {}),
    (QWEN_MOE, "tp=2 cp=2 ep=8 etp=2 cp_comm_type=a2a", 32768, {"packed": True}),
    (DEEPSEEK, "pp=8 vp=4 ep=8 cp=1", 4096, {}),
    (DEEPSEEK, "pp=8 ep=8 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 recompute=full", 262144, {}),
    (GPT_OSS, "cp=8 ep=8 cp_comm_type=a2a", 131072, {}),
    (GPT_OSS, "pp=2 vp=13 cp=8 ep=8 cp_comm_type=a2a mbs=2", 262144, {}),
    (DSA, "pp=8 cp=8 ep=8 cp_comm_type=all_gather", 262144, {"versions": {"mcore": "0.19.0"}, "loss_in_place": False}),
    (MAMBA, "tp=2 cp=4 pp=2", 65536, {}),
    (DELTA_NET, "tp=2 cp=8 ep=8", 65536, {"versions": {"mcore": "0.19.0"}, "loss_in_place": False}),
    (LLAMA, "tp=4 cp=4", 65536, {"precision": "nvfp4"}),
    (LLAMA, "tp=8 cp=2", 65536, {"gpu": H100, "overlaps_tp": True}),
    (QWEN_MOE, "pp=2 vp=4 ep=16 cp=2 mbs=2", 32768, {"gpu": H100}),
    (QWEN_MOE, "pp=2 ep=16 cp=2", 32768, {"gpu": H100}),
    (QWEN_MOE, "tp=2 ep=16 recompute=full", 32768, {"gpu": H100, "precision": "fp8"}),
    (QWEN_MOE, "tp=2 ep=16", 32768, {"gpu": H100, "overlaps_tp": True, "overlaps_ep": False, "sends_once": False}),
    (DEEPSEEK, "tp=2 pp=4 vp=8 ep=16", 4096, {"gpu": H100, "precision": "fp8"}),
    (DEEPSEEK, "pp=4 vp=8 ep=16", 4096, {"precision": "mxfp8", "overlaps_ep": True}),
]
"""Model, layout, tokens of a sequence, and what else the job has."""
OF_MODEL = {
    "mlm": "--position-embedding-type rope --max-position-embeddings 4096 --seq-length 4096 --micro-batch-size 4 "
    "--global-batch-size 64 --tensor-model-parallel-size 8 --no-rope-fusion --disable-bias-linear "
    "--linear-attention-freq 4",
    "bridge": "model.apply_rope_fusion=false model.seq_length=4096 train.micro_batch_size=4",
    "verl": "data.train_batch_size=96 actor_rollout_ref.rollout.n=5 actor_rollout_ref.actor.ppo_mini_batch_size=32 "
    "++actor_rollout_ref.actor.megatron.override_transformer_config.apply_rope_fusion=False "
    "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=8",
    "nemo-rl": "policy.train_micro_batch_size=4 policy.megatron_cfg.tensor_model_parallel_size=8",
}
"""Words that a launch of the model may have before those of the plan: of another layout, with other batches."""
ALONE = "--position-embedding-type rope --no-rope-fusion --disable-bias-linear --linear-attention-freq 4"
"""What Megatron-LM must know of any of these models: its command line takes nothing from a config.json."""


def job_for(layout: Layout, length: int, more: dict[str, Any]) -> PlanJob:
    world = max(64, layout.tp * layout.cp * layout.pp)
    others = dict(more)
    return PlanJob(world, 8, others.pop("gpu", gpu_named("b200")), 8, length, 2 * world, **others)


@pytest.mark.slow
@rows("case", CASES)
def test_pasted_overrides_pass_the_check(case: tuple[dict[str, Any], str, int, dict[str, Any]], tmp_path: Path) -> None:
    config, text, length, more = case
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    model, layout = plan_model(config), parse_layout(text)
    job = job_for(layout, length, more)
    assert forbidden(model, layout, job) == []
    stated = [f"world_size={job.world_size}", "gpus_per_node=8", f"thd={str(job.packed).lower()}"]
    stated += [f"{name}={version}" for name, version in job.versions.items()]
    if job.precision in RECIPES:
        stated += ["fp8=hybrid", f"fp8_recipe={RECIPES[job.precision]}"]
    for dialect in FRAMEWORKS:
        words = overrides(model, layout, job, dialect)
        if dialect in WITHOUT_LEVELS and layout.hcp_sizes:
            assert words == []
            continue
        alone = ALONE.split() if dialect == "mlm" else []
        for before in (OF_MODEL[dialect].split(), alone):
            given = LoadOptions(
                cast("Dialect", dialect), (*before, *words), assumes=tuple(stated), model_file=str(path)
            )
            report = check_launch(load_launch("", given), RULES, fixes=False)
            errors = [item.rule.id for item in report.findings if item.severity == "error"]
            assert errors == [], (dialect, words)


@rows("dialect", FRAMEWORKS)
@rows("case", CASES)
def test_a_launch_of_the_overrides_alone_has_their_layout_memory_and_time(
    case: tuple[dict[str, Any], str, int, dict[str, Any]], dialect: str, tmp_path: Path
) -> None:
    config, text, length, more = case
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    model, layout = plan_model(config), parse_layout(text)
    versions = {"te": "2.19", "mcore": "0.17.1", **({"bridge": "0.4"} if dialect == "bridge" else {})}
    job = replace(job_for(layout, length, more), versions=versions)
    words = overrides(model, layout, job, dialect)
    if not words:
        assert dialect in WITHOUT_LEVELS and layout.hcp_sizes
        return
    job = as_run_by(dialect, job)
    launch = load_launch("", LoadOptions(cast("Dialect", dialect), tuple(words), model_file=str(path)))
    facts = with_own_split(model, {name: fact.value for name, fact in launch.facts.items()})
    given = {"gpus": job.world_size, "gpu": job.gpu.name, "packed": job.packed}
    if dialect == "verl":  # its data has the length, its step is counted in prompts
        given |= {"seq_length": length, "global_batch": job.global_batch}
    again = job_of(given, facts, versions, traits_in(launch, launch.reading.settings, facts))
    assert layout_of(facts, length) == layout
    assert not again.marks
    before, after = (judge(model, layout, one, rates_for(one)) for one in (job, again))
    assert after.memory == before.memory
    assert after.time == before.time


@pytest.mark.parametrize("dialect", ["bridge", "mlm"])
def test_modules_that_are_recomputed_are_read_back(dialect: str) -> None:
    job = replace(job_for(Layout(recompute="selective"), 4096, {}), recomputes=frozenset({"mlp", "layernorm"}))
    words = overrides(plan_model(LLAMA), Layout(recompute="selective"), job, dialect)
    launch = load_launch("", LoadOptions(cast("Dialect", dialect), tuple(words)))
    facts = {name: fact.value for name, fact in launch.facts.items()}
    assert traits_in(launch, launch.reading.settings, facts).recomputes == job.recomputes


@pytest.mark.parametrize("text", ["pp=2 ep=16 cp=2", "ep=16 recompute=full", "pp=2 vp=4 ep=16 cp=2", "ep=16"])
def test_an_exchange_is_counted_as_overlapped_where_megatron_core_lets_it_be(text: str) -> None:
    model, layout = plan_model(QWEN_MOE), parse_layout(text)
    job = job_for(layout, 32768, {"gpu": H100})
    apart = replace(job, overlaps_ep=False)
    both = [judge(model, layout, one, rates_for(one)).time for one in (job, apart)]
    words = [*overrides(model, layout, apart, "mlm"), "--overlap-moe-expert-parallel-comm"]
    given = LoadOptions("mlm", tuple(words), assumes=(f"world_size={job.world_size}", "recompute_granularity=null"))
    refused = any(item.rule.id == "MOE004" for item in check_launch(load_launch("", given), RULES).findings)
    assert refused == ("pp=2 ep" in text)
    assert (both[0] == both[1]) == (refused or layout.recompute == "full")


def test_no_dense_mask_is_asked_for_where_a_sequence_is_long() -> None:
    model, layout = plan_model(LLAMA), parse_layout("tp=8 cp=8")
    masks = [
        "--no-create-attention-mask-in-dataloader" in overrides(model, layout, job_for(layout, length, {}), "mlm")
        for length in (16384, 131072)
    ]
    assert masks == [False, True]


def test_positions_are_those_of_the_model_or_as_many_as_the_sequence_needs() -> None:
    model, layout = plan_model(LLAMA), parse_layout("tp=8")
    for length, positions in ((4096, "8192"), (65536, "65536")):
        words = overrides(model, layout, job_for(layout, length, {}), "mlm")
        assert words[words.index("--max-position-embeddings") + 1] == positions


@pytest.mark.parametrize(
    ("config", "text", "rules"),
    [
        (DSA, "cp=8 pp=8 ep=8", ["MODEL002"]),
        (MAMBA, "cp=3", ["CP001", "MODEL001"]),
        (MAMBA, "tp=2 pp=2 vp=2", ["PIPE005"]),
        (MAMBA, "pp=3", ["PIPE005"]),
        (DELTA_NET, "tp=2 cp=16 ep=8", ["MODEL003"]),
    ],
)
def test_layers_beside_attention_forbid_what_the_rules_forbid(
    config: dict[str, Any], text: str, rules: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    model, layout = plan_model(config), parse_layout(text)
    world = 48
    job = PlanJob(world, 8, gpu_named("b200"), 8, 65536, 2 * world)
    found = set(forbidden(model, layout, job)) - {"TOPO003", "TOPO004"}
    assert found == set(rules)
    words = [*ALONE.split(), *overrides(model, layout, job, "mlm")]
    if model.mixers.pattern:  # Megatron-LM has it on its command line
        words += ["--hybrid-layer-pattern", config["hybrid_override_pattern"]]
    given = LoadOptions(
        "mlm", tuple(words), assumes=("world_size=768", "gpus_per_node=8", "mcore=0.19.2"), model_file=str(path)
    )
    report = check_launch(load_launch("", given), RULES, fixes=False)
    errors = {item.rule.id for item in report.findings if item.severity == "error"}
    assert set(rules) <= errors


@pytest.mark.sample(3)
@pytest.mark.parametrize("config", [MAMBA, DELTA_NET, DSA], ids=["mamba", "delta net", "dsa"])
def test_a_search_finds_only_what_these_layers_allow(config: dict[str, Any]) -> None:
    model = plan_model(config)
    for fixed in ({}, {"pp": 2}, {"cp": 8}):
        job = PlanJob(256, 8, gpu_named("b200"), 8, 65536, 512)
        found = plan_job(model, job, rates_for(job), fixed, 20)
        layouts = [item.layout for item in found.best] + [item.layout for item in found.frontier]
        assert layouts and not any(forbidden(model, layout, job) for layout in layouts)
