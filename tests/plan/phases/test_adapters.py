"""LoRA's own memory, vLLM's blocks of recurrent state, and gated delta nets without tensor parallelism."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.launch.fact import Setting
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import PlanModel, plan_model
from megatron_hcp.plan.phases.job import ALL, ROLLOUT, UPDATE, Engine, RlJob
from megatron_hcp.plan.phases.memory import Phase, phases_of
from megatron_hcp.plan.phases.read import rl_job
from megatron_hcp.plan.phases.unsure import unsure_of

VALUES: dict[str, Any] = {
    "num_layers": 32, "hidden_size": 4096, "heads": 32, "ffn_hidden_size": 12288, "vocab_size": 248320,
}  # fmt: skip
DENSE = plan_model(VALUES)
HYBRID = plan_model({
    **VALUES, "attention_variant": "gated_delta_net", "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_attention_freq": 4,
})  # fmt: skip
"""The sizes of Qwen3.5 9B: of 32 layers 24 are gated delta nets, with heads of 128."""
JOB = PlanJob(8, 8, gpu_named("h100"), 8, 8192, 64)
GIB = 1 << 30
Hcp = Callable[..., "CompletedProcess[str]"]


def named(rl: RlJob, model: PlanModel = DENSE, tp: int = 1, job: PlanJob = JOB) -> dict[str, Phase]:
    return {item.name: item for item in phases_of(model, Layout(tp=tp), job, rl)}


def slime(**said: Any) -> RlJob:
    return rl_job("slime", [Setting(key, value) for key, value in said.items()], Layout(), 8192)


def test_an_adapter_has_the_rows_and_columns_of_each_matrix_at_its_rank() -> None:
    """Weights of 2 bytes, gradients of 4, and what of 12 bytes of the optimizer one of eight ranks has."""
    matrices = ((3 * 4096, 4096), (4096, 4096), (12288, 4096), (4096, 12288))
    elements = 32 * sum(16 * (rows + columns) for rows, columns in matrices)
    job = replace(JOB, optimizer_bytes=12)
    found = named(RlJob("verl", 8192, lora_rank=16), job=job)[UPDATE].terms
    whole = named(RlJob("verl", 8192), job=job)[UPDATE].terms
    assert found["adapters"] == pytest.approx(elements * (2 + 4 + 12 / 8) / GIB)
    assert "adapters" not in whole and not {"gradients", "optimizer"} & set(found)


def test_each_expert_has_an_adapter_of_its_own() -> None:
    experts = plan_model({**VALUES, "num_experts": 8, "moe_ffn_hidden_size": 1024, "moe_router_topk": 2})
    found, dense = (named(RlJob("verl", 8192, lora_rank=16), model, job=replace(JOB, optimizer_bytes=0))[UPDATE]
                    for model in (experts, DENSE))  # fmt: skip
    more = 32 * 16 * (8 * 2 * (1024 + 4096) - 2 * (12288 + 4096))
    assert found.terms["adapters"] - dense.terms["adapters"] == pytest.approx(more * (2 + 4) / GIB)


def test_slime_s_adapters_leave_the_model_without_gradients() -> None:
    whole, adapted = (slime(colocate=True, **more) for more in ({}, {"lora_rank": "16"}))
    assert (whole.lora_rank, adapted.lora_rank) == (0, 16)
    assert "gradients" in named(whole)[UPDATE].terms and "gradients" not in named(adapted)[UPDATE].terms
    experts = plan_model({**VALUES, "num_experts": 8, "moe_ffn_hidden_size": 1024, "moe_router_topk": 2})
    assert any("LoRA of experts" in mark for mark in unsure_of(experts, JOB, adapted, ()))
    missing = [name for name, phase in named(adapted, experts).items() if phase.misses]
    assert missing == [UPDATE] and not named(adapted)[UPDATE].misses and not named(whole, experts)[UPDATE].misses
    assert not any("LoRA of experts" in mark for mark in unsure_of(DENSE, JOB, adapted, ()))


def test_a_block_of_recurrent_state_is_as_large_as_vllm_says() -> None:
    """A public report of vLLM 0.27 and a Qwen3.5 9B: 1.74 GiB of cache, and 108 blocks for max_num_seqs 256."""
    assert int(1.74 * GIB / HYBRID.mixers.block_bytes(32)) == 108
    assert DENSE.mixers.block_bytes(32) == 0


def test_a_block_of_a_mamba_layer_has_its_state_and_the_convolution_s_inputs() -> None:
    """Nemotron's pattern of eight layers: two of attention, three of Mamba with 64 heads of 64 and a state of 128."""
    model = plan_model({
        **VALUES, "num_layers": 8, "hybrid_override_pattern": "M-M*-M-*", "mamba_num_heads": 64, "mamba_head_dim": 64,
        "ssm_state_size": 128, "n_groups": 8,
    })  # fmt: skip
    assert model.mixers.block_bytes(8) == 2 * (4 * 64 * 64 * 128 + 3 * 2 * (64 * 64 + 2 * 8 * 128))


def test_each_sequence_that_vllm_may_run_takes_a_block() -> None:
    few, many = (
        named(RlJob("verl", 8192, engine=Engine("vllm", 0.3, 1, sequences=count), offloads=ALL), HYBRID)[ROLLOUT]
        for count in (1024, 2048)
    )
    block = HYBRID.mixers.block_bytes(32)
    assert few.lacks and many.lacks - few.lacks == pytest.approx(1024 * (block + 24 * 248320) / GIB)


@pytest.mark.parametrize(("spec", "whole"), [("get_qwen3_5_spec", True), ("get_glm5_spec", False)])
def test_slime_s_own_gated_delta_nets_are_whole_on_each_rank(spec: str, whole: bool) -> None:
    rl = slime(spec=["slime_plugins.models.x", spec])
    assert rl.whole_nets is whole
    each = 4096 * (2 * 16 * 128 + 3 * 32 * 128 + 2 * 32)
    more = (
        named(rl, HYBRID, 4)[UPDATE].terms["weights"] - named(RlJob("slime", 8192), HYBRID, 4)[UPDATE].terms["weights"]
    )
    assert more == pytest.approx(whole * 2 * 24 * each * 3 / 4 / GIB)


def test_adapters_of_experts_are_not_said_to_fit(hcp: Hcp, root: Path) -> None:
    words = ("plan", "--dialect", "verl", "--gpu", "h200", "--phases")
    actor, megatron = "actor_rollout_ref.", "actor_rollout_ref.actor.megatron."
    launch = (
        f"{actor}model.path=Qwen/Qwen3-30B-A3B algorithm.adv_estimator=grpo data.train_batch_size=512 "
        "data.max_prompt_length=1024 data.max_response_length=3072 trainer.nnodes=1 trainer.n_gpus_per_node=8 "
        f"{megatron}expert_model_parallel_size=8 {megatron}expert_tensor_parallel_size=1 "
        f"{actor}model.lora.rank=32 {actor}rollout.gpu_memory_utilization=0.3"
    )
    lines = hcp(*words, "--", *launch.split(), cwd=root).stdout.splitlines()
    said = " ".join(" ".join(lines).split())
    assert "cannot tell whether the step fits: actor update leaves" in said
    assert "adapters of experts were reported to need more than is counted" in said
    assert not any(line.startswith("each phase fits") for line in lines)
