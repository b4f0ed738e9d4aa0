"""Models whose layers are one block each: their weights, memory and time are those of the blocks that they have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.constants import rates_for
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.memory.activations import layer_saved
from megatron_hcp.plan.model import PlanModel, plan_model
from megatron_hcp.plan.time.layer import Work
from megatron_hcp.plan.time.step import step_time
from megatron_hcp.plan.weights import parameters

NANO: dict[str, Any] = {
    "num_layers": 52, "hidden_size": 2688, "heads": 32, "kv_heads": 2, "head_dim": 128, "ffn_hidden_size": 1856,
    "vocab_size": 131072, "num_experts": 128, "moe_router_topk": 6, "moe_ffn_hidden_size": 1856,
    "moe_shared_expert_intermediate_size": 3712, "gated_linear_unit": False, "mamba_num_heads": 64,
    "mamba_num_groups": 8, "mamba_head_dim": 64,
    "hybrid_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
}  # fmt: skip
"""NVIDIA-Nemotron-3-Nano-30B-A3B: 23 Mamba layers, 6 of attention, 23 with experts."""
SUPER = {
    **NANO, "num_layers": 88, "hidden_size": 4096, "ffn_hidden_size": 2688, "moe_ffn_hidden_size": 2688,
    "num_experts": 512, "moe_router_topk": 22, "moe_shared_expert_intermediate_size": 5376, "mamba_num_heads": 128,
    "moe_latent_size": 1024,
    "hybrid_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
}  # fmt: skip
JOB = PlanJob(8, 4, gpu_named("gb300"), 72, 8192, 512, "bf16")


def billions(model: PlanModel) -> float:
    return sum(parameters(model, Layout(), 0)) / 1e9


@pytest.mark.parametrize(("values", "published"), [(NANO, 31.6), (SUPER, 120.6)])
def test_weights_are_as_many_as_published(values: dict[str, Any], published: float) -> None:
    """31.6B and 120.6B parameters, by the models' cards on the Hub."""
    assert billions(plan_model(values)) == pytest.approx(published, rel=0.01)


def test_a_pattern_of_other_letters_is_counted_as_before() -> None:
    strange = plan_model({**NANO, "hybrid_pattern": "MEXE" * 13})
    assert strange.mixers.blocks is None
    assert plan_model(NANO).mixers.blocks is not None


def test_attention_counts_for_the_layers_that_have_it() -> None:
    model, layout = plan_model(NANO), Layout(ep=8)
    plain = replace(model, mixers=model.mixers._replace(blocks=None))
    rates = rates_for(JOB)
    blocks, layers = (Work(one, JOB, rates).front(layout) for one in (model, plain))
    assert blocks.attention < layers.attention / 4
    assert layer_saved(model, layout, JOB, True)["q, k, v"] == pytest.approx(
        layer_saved(plain, layout, JOB, True)["q, k, v"] * 6 / 52
    )


def test_rows_of_another_width_move_and_multiply_less() -> None:
    latent, wide = plan_model(SUPER), plan_model({**SUPER, "moe_latent_size": None})
    one, other = (Work(model, JOB, rates_for(JOB)).experts(Layout(ep=8)) for model in (latent, wide))
    assert one.ep == pytest.approx(other.ep / 4)
    assert one.gemm < other.gemm and one.memory_bound < other.memory_bound


def test_a_step_with_mamba_layers_is_marked() -> None:
    found = step_time(plan_model(NANO), Layout(ep=8), JOB, rates_for(JOB))
    assert "Mamba layers: no measured step has them" in found.marks
