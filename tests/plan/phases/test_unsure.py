"""What of the phases no formula counts is named, so that a phase that fits is not taken for safe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.launch.fact import Setting
from megatron_hcp.plan.layout import PlanJob
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.phases.job import Engine, RlJob
from megatron_hcp.plan.phases.unsure import unsure_of

VALUES = {"num_layers": 8, "hidden_size": 4096, "heads": 32, "ffn_hidden_size": 14336, "vocab_size": 128256}
EXPERTS = {"num_experts": 8, "moe_ffn_hidden_size": 1024, "moe_router_topk": 2}
NETS = {"attention_variant": "gated_delta_net", "linear_num_key_heads": 16, "linear_num_value_heads": 32}
JOB = PlanJob(8, 8, gpu_named("h100"), 8, 4096, 32, packed=True)
RL = RlJob("nemo-rl", 4096, log_prob_tokens=4096, engine=Engine("vllm", 0.6, 1))


def test_a_packed_dense_model_has_nothing_unsure() -> None:
    assert unsure_of(plan_model(VALUES), JOB, RL, ()) == ()


@pytest.mark.parametrize(
    ("more", "job", "says"),
    [
        (NETS, JOB, "backward pass of gated delta nets"),
        (EXPERTS, JOB, "engine of a model with experts"),
        ({}, replace(JOB, packed=False), "not packed"),
        ({}, replace(JOB, shards_weights=True), "FSDP has no formula"),
    ],
)
def test_a_term_without_a_formula_is_named(more: dict[str, object], job: PlanJob, says: str) -> None:
    (mark,) = unsure_of(plan_model({**VALUES, **more}), job, RL, ())
    assert says in mark


def test_layers_of_a_spec_are_unsure() -> None:
    (mark,) = unsure_of(plan_model(VALUES), JOB, RL, [Setting("spec", ["plugins.models", "get_spec"])])
    assert "--spec" in mark


def test_an_engine_on_other_gpus_and_a_step_without_log_probabilities_have_nothing_unsure() -> None:
    alone = RL._replace(engine=None, log_prob_tokens=0)
    assert unsure_of(plan_model({**VALUES, **EXPERTS}), replace(JOB, packed=False), alone, ()) == ()
