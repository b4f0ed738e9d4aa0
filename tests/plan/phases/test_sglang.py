"""What SGLang needs beside its share of the GPU, which has weights and KV cache alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.launch.fact import Setting
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.phases.job import ROLLOUT, Engine, RlJob
from megatron_hcp.plan.phases.memory import phases_of
from megatron_hcp.plan.phases.read import rl_job

MODEL = plan_model({"num_layers": 8, "hidden_size": 4096, "heads": 32, "ffn_hidden_size": 14336, "vocab_size": 128256})
JOB = PlanJob(8, 8, gpu_named("h100"), 8, 8192, 64)


def taken(engine: Engine, gpu: str = "h100") -> float:
    """GiB of the engine in the rollout."""
    job = replace(JOB, gpu=gpu_named(gpu))
    (rollout,) = (
        item
        for item in phases_of(MODEL, Layout(tp=2), job, RlJob("verl", 8192, 8192, engine=engine))
        if item.name == ROLLOUT
    )
    return rollout.terms["engine"]


@pytest.mark.parametrize(
    ("gpu", "gpus", "tokens", "sequences"),
    [
        ("l40s", 1, 4096, 32), ("l40s", 4, 4096, 160), ("h100", 1, 8192, 256), ("h200", 8, 8192, 512),
        ("b200", 1, 16384, 512), ("b200", 8, 16384, 512),
    ],
)  # fmt: skip
def test_sglang_takes_a_prefill_and_its_graphs_beside_its_share_by_the_memory_of_the_gpu(
    gpu: str, gpus: int, tokens: int, sequences: int
) -> None:
    """By SGLang's own count, in MiB, and a CUDA context of its own."""
    beside = 512 + 1.5 * tokens + 2 * sequences + 128 * gpus
    share = 0.6 * gpu_named(gpu).reported_mib
    assert taken(Engine("sglang", 0.6, gpus), gpu) == pytest.approx((share + 1024 + beside) / 1024)


@pytest.mark.parametrize(
    ("dialect", "prefix", "more"),
    [
        ("verl", "actor_rollout_ref.rollout.engine_kwargs.sglang.", {"actor_rollout_ref.rollout.name": "sglang"}),
        ("slime", "sglang_", {"colocate": "true"}),
    ],
)
def test_a_launch_sets_the_prefill_and_the_graphs_itself(dialect: str, prefix: str, more: dict[str, str]) -> None:
    said = {**more, f"{prefix}chunked_prefill_size": "4096", f"{prefix}cuda_graph_max_bs": "64"}
    own, usual = (
        rl_job(dialect, [Setting(key, value) for key, value in each.items()], Layout(), 8192).engine
        for each in (said, more)
    )
    assert own is not None and usual is not None
    many = 512 if usual.gpus >= 4 else 256
    assert taken(usual) - taken(own) == pytest.approx((1.5 * 4096 + 2 * (many - 64)) / 1024)
    least = own._replace(prefill_tokens=16)
    assert taken(own) - taken(least) == pytest.approx(1.5 * 2048 / 1024)


def test_attention_that_is_data_parallel_shares_the_prefill_that_a_launch_states() -> None:
    """_handle_data_parallelism of SGLang: chunked_prefill_size // dp_size."""
    said = {"colocate": "true", "sglang_chunked_prefill_size": "131072", "sglang_dp_size": "64"}
    of = [Setting(key, value) for key, value in said.items()]
    alone = rl_job("slime", of, Layout(), 8192).engine
    shared = rl_job("slime", [*of, Setting("sglang_enable_dp_attention", [])], Layout(), 8192).engine
    assert alone is not None and shared is not None
    assert (alone.prefill_tokens, shared.prefill_tokens) == (131072, 2048)


def test_the_largest_of_the_graphs_that_a_launch_lists_counts() -> None:
    settings = [Setting("colocate", "true"), Setting("sglang_cuda_graph_bs", ["1", "2", "4", "8"])]
    engine = rl_job("slime", settings, Layout(), 8192).engine
    assert engine is not None and engine.graph_sequences == 8
