"""What a step needs before its first phase, and an engine that does not start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.launch.fact import Setting
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import PlanModel, plan_model
from megatron_hcp.plan.phases.change import first_failure
from megatron_hcp.plan.phases.job import ALL, LOG_PROB, ROLLOUT, START, SYNC, Engine, Logits, RlJob
from megatron_hcp.plan.phases.margin import FAILS, answer, answer_of
from megatron_hcp.plan.phases.memory import COMMUNICATORS, Phase, phases_of
from megatron_hcp.plan.phases.read import rl_job

GIB = 1 << 30
DENSE = {"num_layers": 32, "hidden_size": 4096, "heads": 32, "ffn_hidden_size": 14336, "vocab_size": 128256}
MOE = {
    "num_hidden_layers": 36, "hidden_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "intermediate_size": 2880, "vocab_size": 201088, "num_local_experts": 128, "num_experts_per_tok": 4,
}  # fmt: skip
EXPERTS = 36 * 128 * (3 * 2880 * 2880)
"""Parameters of GPT-OSS 120B's experts, but for their biases."""
JOB = PlanJob(64, 8, gpu_named("h100"), 8, 2048, 128, fp32_gradients=False)
NEMO = RlJob("nemo-rl", 2048, 2048, 2048, engine=Engine("vllm", 0.5, 8, sequences=1024), offloads=ALL)


def named(model: PlanModel, layout: Layout, rl: RlJob, job: PlanJob = JOB) -> dict[str, Phase]:
    return {item.name: item for item in phases_of(model, layout, job, rl)}


def gpt_oss(kind: str = "gpt_oss") -> PlanModel:
    return plan_model({**MOE, "model_type": kind})


def test_at_the_start_weights_are_there_twice_while_ddp_s_buffer_is_filled() -> None:
    """_ParamAndGradBuffer of megatron-core makes both buffers before it moves a weight and frees it."""
    model, rl = plan_model(DENSE), RlJob("verl", 8192, 8192, engine=Engine("vllm", 0.5))
    terms = named(model, Layout(tp=2), rl)[START].terms
    assert terms["weights that are moved"] == pytest.approx(terms["weights"]) == pytest.approx(terms["gradients"])
    assert "engine" not in terms and "optimizer" not in terms  # verl's engine starts after it, and no step was made
    halves = named(model, Layout(tp=2, pp=2, vp=2), rl)[START].terms
    assert halves["weights that are moved"] == pytest.approx(halves["weights"] / 2, rel=0.2)  # a chunk at a time
    alone = named(model, Layout(tp=2), rl, replace(JOB, sharded_optimizer=False))[START].terms
    assert "weights that are moved" not in alone  # without a buffer for weights none is moved
    assert START not in named(model, Layout(tp=2), rl._replace(lora_rank=8))


def test_gpt_oss_on_eight_nodes_fails_at_the_start_as_reported() -> None:
    """NeMo-RL, FUSEDATTN_TEST_REPORT.md: 54.41 GiB of the model and 26.71 of gradients on TP 4, PP 2, EP 4."""
    phases = phases_of(gpt_oss(), Layout(tp=4, pp=2, ep=4), JOB, NEMO)
    start = phases[0]
    moved = EXPERTS / 8 * 2 / GIB
    assert start.name == START and start.terms["weights that are moved"] == pytest.approx(moved, rel=0.02)
    assert start.terms["weights"] + start.terms["weights that are moved"] == pytest.approx(54.41, rel=0.02)
    assert start.terms["gradients"] == pytest.approx(26.71, rel=0.03)
    failure = first_failure(gpt_oss(), Layout(tp=4, pp=2, ep=4), JOB, NEMO, phases)
    assert failure is not None and failure.phase.name == START


def test_a_share_that_vllm_s_weights_and_sampling_fill_does_not_start_and_a_larger_one_mends_it() -> None:
    """The same report: of a share of 0.5 4.77 GiB are left for the KV cache, of 0.43 -0.77, and 0.4 does not start."""
    model, layout = gpt_oss(), Layout(tp=8, pp=2, ep=8)
    job = replace(JOB, world_size=128)
    whole = 81559 / 1024
    enough = named(model, layout, NEMO, job)[ROLLOUT]
    assert enough.fits and not enough.lacks
    for share, left in ((0.43, -0.77), (0.4, 4.77 - 0.1 * whole)):
        rl = NEMO._replace(engine=Engine("vllm", share, 8, sequences=1024))
        phases = phases_of(model, layout, job, rl)
        rollout = next(item for item in phases if item.name == ROLLOUT)
        assert rollout.lacks == pytest.approx(-left, abs=0.5) and rollout.over == rollout.lacks
        assert not rollout.fits and answer(rollout) == answer_of(phases) == FAILS
        failure = first_failure(model, layout, job, rl, phases)
        assert failure is not None and failure.phase.name == ROLLOUT
        assert failure.setting == "policy.generation.vllm_cfg.gpu_memory_utilization=0.45"
    weights = 2 * (EXPERTS + 2 * 201088 * 2880) / 8
    needs = (weights + 24 * 1024 * 201088) / GIB + COMMUNICATORS
    assert needs == pytest.approx(0.5 * whole - 4.77, abs=0.8)
    quantized = NEMO._replace(engine=Engine("vllm", 0.3, 8))
    assert named(model, layout, quantized, job)[ROLLOUT].fits  # nothing says how large its weights are


def test_experts_that_a_checkpoint_has_in_one_tensor_are_exported_twice_at_once() -> None:
    """_accumulate_grouped_export of Megatron-Bridge: all of a layer's experts one by one, and stacked."""
    layout, free = Layout(tp=8, pp=2, ep=8), NEMO._replace(refit_share=1e-9)
    one, many = (named(gpt_oss(kind), layout, free)[SYNC].terms["bucket"] for kind in ("gpt_oss", "mixtral"))
    assert one == pytest.approx(2 * 2 * 128 * 2880 * 2 * 2880 / GIB, rel=1e-3)
    assert many == pytest.approx(2 * 201088 * 2880 / GIB, rel=0.01)
    assert (
        plan_model(MOE, "Qwen/Qwen3.5-35B-A3B").stacks_experts
        and not plan_model(DENSE, "openai/gpt-oss").stacks_experts
    )


def test_a_forward_pass_without_gradients_holds_the_larger_half_of_a_layer() -> None:
    """With what lab/results/rl_peak_h100.json measured: 3 hidden and 3 ffn of two bytes a token."""
    terms = named(plan_model(DENSE), Layout(), RlJob("verl", 65536, 65536, logits=Logits(fused=True)))[LOG_PROB].terms
    assert terms["layer forward"] == pytest.approx(65536 * 2 * (3 * 4096 + 2 * 14336) / GIB, rel=0.02)


def test_nemo_rl_s_ratio_of_the_buffers_is_read() -> None:
    key = "policy.megatron_cfg.env_vars.NRL_REFIT_BUFFER_MEMORY_RATIO"
    assert rl_job("nemo-rl", [Setting(key, 0.5)], Layout(), 2048).refit_share == 0.5
