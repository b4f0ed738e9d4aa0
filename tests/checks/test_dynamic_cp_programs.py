"""The programs of dynamic CP pass on four and eight processes, and fail when what they verify is broken."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

PER_TOKEN = "sum, detached, R/T, divided by all real tokens (verl 0.9)"

GRADIENTS_STAY_WHERE_THEY_ARE = """
import megatron_hcp.runtime.collectives as collectives
collectives._RingShift.backward = staticmethod(lambda ctx, grad: (grad, None, None))
"""
THE_MULTIPLIER_IS_THAT_OF_THE_PULL_REQUEST = """
import megatron_hcp.runtime.dcp_loss as dcp_loss
exact = dcp_loss.loss_weights
def divided(world_size, group_sizes, **how):
    return tuple(one._replace(backward=one.backward / one.local_cp_size)
                 for one in exact(world_size, group_sizes, **how))
dcp_loss.loss_weights = divided
"""
THE_GATHER_DETACHES_NOTHING = """
import megatron_hcp.runtime.dcp_loss as dcp_loss
import megatron_hcp.proofs.dcp_step as dcp_step
gather = dcp_loss.gather_rows
def attached(rows, group, how):
    return gather(rows, group, "autograd" if how == "detached" and rows.is_floating_point() else how)
dcp_step.gather_rows = attached
"""
THE_REPORT_IS_WEIGHED_AS_THE_GRADIENT = """
import megatron_hcp.runtime.dcp_loss as dcp_loss
exact = dcp_loss.loss_weights
def alike(world_size, group_sizes, **how):
    return tuple(one._replace(report_mean=one.backward) for one in exact(world_size, group_sizes, **how))
dcp_loss.loss_weights = alike
"""
EVERY_RANK_COUNTS_ALL_TOKENS = """
import megatron_hcp.proofs.dcp_step as dcp_step
dcp_step.real_tokens_of_rank = lambda lengths, local_cp_size, cp_rank: sum(lengths)
"""
THE_SHARDS_ARE_LAID_END_TO_END = """
import torch
import megatron_hcp.runtime.shards as shards
shards.unshard = lambda parts, layout, cu_seqlens: torch.cat(list(parts))
"""
EVERY_RANK_IS_THE_FIRST_OF_ITS_GROUP = """
import megatron_hcp.runtime.dcp_split as dcp_split
runs = dcp_split.local_runs
dcp_split.local_runs = lambda lengths, cp_size, cp_rank, setup: runs(lengths, cp_size, 0, setup)
"""
SAMPLES_COME_BACK_AS_THEY_ARRIVE = """
import megatron_hcp.runtime.dcp_split as dcp_split
in_order = dcp_split._in_order
def arrived(records, num_samples, outputs):
    arrived = iter(range(num_samples))
    return in_order([([next(arrived) for _ in samples], parts) for samples, parts in records], num_samples, outputs)
dcp_split._in_order = arrived
"""
GROUPS_BEGIN_ELSEWHERE = """
from megatron_hcp.runtime.groups import GroupBuilder
build = GroupBuilder.build
def shifted(self, rank_lists, desc):
    ranks = [rank for ranks in rank_lists for rank in ranks]
    size = len(list(rank_lists)[0])
    turned = ranks[1:] + ranks[:1]
    return build(self, [turned[i : i + size] for i in range(0, len(ranks), size)], desc)
GroupBuilder.build = shifted
"""
THE_BACKWARD_CALLS_A_METHOD_THAT_IS_NOT_THERE = """
from megatron.core.tensor_parallel.random import CheckpointFunction
def backward(ctx, *args):
    return CheckpointFunction._recover_function_args(ctx)
CheckpointFunction.backward = staticmethod(backward)
"""
THE_CLASS_HAS_THE_METHOD = (
    THE_BACKWARD_CALLS_A_METHOD_THAT_IS_NOT_THERE
    + "CheckpointFunction._recover_function_args = staticmethod(lambda ctx: ctx.saved_tensors)"
)


@pytest.mark.parametrize("size", [4, 8])
def test_the_right_multipliers_are_exact_and_the_wrong_ones_as_wrong_as_predicted(forked, size):
    ran = forked("dynamic_cp_loss", "--world-size", str(size))
    assert ran.code == 0, ran.stderr
    assert ran.report["world_size"] == size
    found = {result["name"]: result for result in ran.report["results"]}
    # Arithmetic: D/W of the gradient for pull request 5869 in groups of all ranks, and 1/W^2 for verl 0.8.0.
    assert f"C {size}: mean, detached, D/T (verl#5869) is {1 / size:.6g} of the gradient" in found
    assert f"C {size}: mean, detached, 1/(W T) (verl 0.8.0) is {1 / size**2:.6g} of the gradient" in found
    assert max(result["measured"] for result in found.values()) < 1e-12
    wide = {4: "C 1, 4, 2 in turn", 8: "C 1, 8, 2 in turn"}[size]
    assert found[f"{wide}: mean, detached, W/T"]["ok"]
    assert f"{wide}: mean, detached, D/T (verl#5869) weighs groups unequally" in found


@pytest.mark.parametrize("size", [4, 8])
def test_a_batch_comes_back_from_groups_of_every_size(forked, size):
    ran = forked("dynamic_cp_round_trip", "--world-size", str(size))
    assert ran.code == 0, ran.stderr
    for width in (2, 4, 8)[: size.bit_length() - 1]:
        assert ran.held(f"the group of {width} has the ranks")


def test_the_installed_megatron_core_is_told_for_verls_patch(forked):
    ran = forked("recompute_guard")
    assert (ran.code, ran.report["world_size"]) == (0, 1)
    assert "must be skipped" in ran.report["results"][0]["detail"]


@pytest.mark.parametrize(
    ("patch", "failed", "held"),
    [
        (GRADIENTS_STAY_WHERE_THEY_ARE, "C 2: mean, detached, W/T", "C 1: mean, detached, W/T"),
        (THE_MULTIPLIER_IS_THAT_OF_THE_PULL_REQUEST, "C 2: mean, detached, W/T", "C 1: mean, detached, W/T"),
        (THE_GATHER_DETACHES_NOTHING, "C 2: mean, detached, W/T", "C 2: mean, autograd, (W/C)/T"),
        (THE_REPORT_IS_WEIGHED_AS_THE_GRADIENT, "C 2: reported with W/C", "C 2: mean, detached, W/T"),
        (EVERY_RANK_COUNTS_ALL_TOKENS, f"C 2: {PER_TOKEN}", f"C 1: {PER_TOKEN}"),
    ],
    ids=["ring", "multiplier", "gather", "report", "count"],
)
def test_the_loss_check_finds_what_is_broken(forked, patch, failed, held):
    ran = forked("dynamic_cp_loss", "--layouts", *sorted({failed[:3], held[:3]}), patch=patch)
    assert ran.code == 1
    names = ran.failed()
    assert failed in names
    assert held not in names


@pytest.mark.parametrize(
    ("patch", "failed"),
    [
        (EVERY_RANK_IS_THE_FIRST_OF_ITS_GROUP, "pr5869: shares hold their own samples, and the padding where it lies"),
        (SAMPLES_COME_BACK_AS_THEY_ARRIVE, "balanced: samples are in their places"),
        (THE_SHARDS_ARE_LAID_END_TO_END, "balanced: losses equal those of one process"),
        (GROUPS_BEGIN_ELSEWHERE, "the group of 2 has the ranks that it should have"),
    ],
    ids=["padding", "order", "shards", "groups"],
)
def test_the_round_trip_finds_what_is_broken(forked, patch, failed):
    ran = forked("dynamic_cp_round_trip", patch=patch)
    assert ran.code == 1
    assert failed in ran.failed()


@pytest.mark.parametrize(
    "patch",
    [THE_BACKWARD_CALLS_A_METHOD_THAT_IS_NOT_THERE, THE_CLASS_HAS_THE_METHOD],
    ids=["a backward that disagrees with its class", "the other case"],
)
def test_the_guard_finds(forked, patch):
    ran = forked("recompute_guard", patch=patch)
    assert ran.code == 1
    assert ran.failed() == [
        "the installed megatron-core takes its arguments from the saved tensors, as every release does"
    ]
