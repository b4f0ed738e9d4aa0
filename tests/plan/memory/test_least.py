"""What a layout holds at least is never more than its peak, and near enough to it to pass over what cannot fit."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.layout import RECOMPUTE, Layout, PlanJob
from megatron_hcp.plan.legal import forbidden
from megatron_hcp.plan.memory import memory
from megatron_hcp.plan.memory.activations import layer_saved
from megatron_hcp.plan.memory.least import LeastPeak, Stages
from megatron_hcp.plan.memory.peak import GIB
from megatron_hcp.plan.model import PlanModel, plan_model
from megatron_hcp.plan.weights import stage_kinds

MODELS = {
    "one KV head": {
        "num_hidden_layers": 6, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 1,
        "intermediate_size": 5632, "vocab_size": 50257,
    },
    "experts": {
        "num_hidden_layers": 7, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16,
        "intermediate_size": 8192, "vocab_size": 128256, "num_experts": 16, "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408, "n_shared_experts": 1, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1,
    },
}  # fmt: skip


def random_layout(model: PlanModel, job: PlanJob, chance: random.Random) -> Layout:
    pick = chance.choice
    while True:
        layout = Layout(
            tp=pick((1, 2, 4)), cp=pick((1, 2, 4)), pp=pick((1, 2, 3, 4)), vp=pick((1, 1, 2)), mbs=pick((1, 2)),
            ep=pick((1, 2, 8)) if model.sizes.experts else 1, recompute=pick(RECOMPUTE),
        )  # fmt: skip
        layout = replace(layout, cp_comm_type=pick(("p2p", "a2a", "all_gather")) if layout.cp > 1 else "p2p")
        if not forbidden(model, layout, job):
            return layout


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sharded", [True, False])
def test_the_least_peak_is_no_more_than_the_peak_and_mostly_close_to_it(name: str, sharded: bool) -> None:
    model, chance = plan_model(MODELS[name]), random.Random(name)
    job = PlanJob(48, 8, gpu_named("h100"), 8, 8192, 192, sharded_optimizer=sharded)
    shares = []
    for _ in range(60):
        layout = random_layout(model, job, chance)
        dense, moe = (
            sum(layer_saved(model, layout, job, kind).values()) if kind in model.kinds else 0.0
            for kind in (False, True)
        )
        kinds = stage_kinds(model, layout.pp, layout.vp)
        pipeline = Stages(layout.pp, layout.vp, job.micro_batches(layout), kinds, 0.0)
        shares.append(LeastPeak(model, job, layout, (dense, moe))(pipeline) / GIB / memory(model, layout, job).peak)
    assert max(shares) <= 1 + 1e-9
    assert sorted(shares)[len(shares) // 2] > 0.9
