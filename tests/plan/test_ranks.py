"""Groups that cross the edge of a node or of an NVLink domain are named and priced as such."""

from __future__ import annotations

from dataclasses import replace

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.constants import rates_of
from megatron_hcp.plan.from_launch import job_of
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.ranks import rank_map
from megatron_hcp.plan.time.links import exchange_seconds, ring_bandwidth
from megatron_hcp.plan.time.overlap import ring_overlap

H100 = PlanJob(48, 8, gpu_named("h100"), 8, 49152, 48)
RATES = replace(rates_of(H100.gpu, "bf16", {}), nvlink=300e9, network=40e9)


def crosses(size: int, stride: int, world: int, domain: int) -> bool:
    """By the ranks themselves: whether a group has ranks of two domains."""
    block = size * stride
    groups = [
        [start + first + step * stride for step in range(size)]
        for start in range(0, world, block)
        for first in range(stride)
    ]
    return any(len({rank // domain for rank in group}) > 1 for group in groups)


@pytest.mark.parametrize("world", [4, 6, 8, 12, 16, 24, 48])
def test_a_reach_is_that_of_the_ranks(world: int) -> None:
    job = replace(H100, world_size=world)
    for tp in (size for size in range(1, world + 1) if world % size == 0):
        for cp in (size for size in range(1, world // tp + 1) if world // tp % size == 0):
            for axis in rank_map(Layout(tp=tp, cp=cp), job):
                assert (axis.reach == "network") == crosses(axis.size, axis.stride, world, 8), (tp, cp, axis)


def test_a_group_that_crosses_is_priced_by_the_network() -> None:
    assert ring_bandwidth(6, 1, 8, RATES) == 80e9  # ranks 6 to 11: two of them drive adapters in the first domain
    assert ring_bandwidth(2, 6, 8, RATES) == 40e9
    assert exchange_seconds(1e9, 2, 6, 1, 8, RATES, True) > 1e9 * 5 / 6 / 300e9
    sizes = {"num_layers": 8, "hidden_size": 4096, "heads": 48, "head_dim": 128, "ffn_hidden_size": 4096}
    model = plan_model({**sizes, "vocab_size": 128256})
    overlap = ring_overlap(model, Layout(cp=6), H100, RATES)
    assert overlap and overlap.across


@pytest.mark.parametrize(("world", "domain"), [(64, 64), (72, 72), (144, 72), (256, 64), (96, 48), (1024, 64)])
def test_domains_of_a_rack_give_a_job_equal_parts(world: int, domain: int) -> None:
    assert PlanJob(world, 4, gpu_named("gb200"), 72, 4096, 64).domain == domain


@pytest.mark.parametrize(
    ("gpu", "per_node", "domain"),
    [("h100", 4, 4), ("h100", 8, 8), ("h100", 16, 8), ("gb200", 4, 72), ("gb300", None, 72), ("l40s", 8, 1)],
)
def test_nvlink_joins_no_more_than_a_node_but_in_a_rack(gpu: str, per_node: int | None, domain: int) -> None:
    given = {"gpus": 64, "gpu": gpu, "seq_length": 4096, "global_batch": 64, "gpus_per_node": per_node}
    assert job_of(given, {}, {}).nvlink_domain == domain
    assert job_of({**given, "nvlink_domain": 32}, {}, {}).nvlink_domain == 32
