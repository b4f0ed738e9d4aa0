"""Topology: the verdict from strides against every group, placed rank by rank."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hcp.core.levels import all_levels_of
from hcp.core.placement import Placement, crosses
from hcp.core.ranks import grids_of
from hcp.launch.fact import Launch
from hcp.rules.engine import check_launch
from hcp.rules.registry import BY_ID, RULES

LaunchOf = Callable[..., Launch]


def layout(tp: int, cp: int, sizes: tuple[int, int], *, pp: int = 1) -> str:
    return (
        f"--tensor-model-parallel-size {tp} --context-parallel-size {cp} --pipeline-model-parallel-size {pp} "
        f"--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes {sizes[0]} {sizes[1]}"
    )


def ids(launch: Launch) -> set[str]:
    return {finding.rule.id for finding in check_launch(launch, RULES, fixes=False).findings}


def test_the_inner_level_is_judged_by_where_its_ranks_are_and_not_by_a_formula(launch_of: LaunchOf) -> None:
    """Against all groups of megatron-core's order, placed on NVLink domains; the formula alone misjudges some."""
    seen = {True: 0, False: 0}
    formula_wrong = 0
    for domain in (4, 6, 8):
        for tp in (1, 2, 3, 4):
            for inner in (2, 3, 4, 8):
                for outer, replicas, pp in ((2, 1, 1), (2, 2, 1), (3, 1, 2), (1, 1, 1), (1, 3, 1)):
                    world = tp * inner * outer * replicas * pp
                    cp_groups = grids_of(world, tp=tp, cp=inner * outer, pp=pp).groups("cp")
                    groups = all_levels_of(cp_groups.lists(), (inner, outer))[0]
                    domains = Placement(world, domain).nodes()
                    leaves = any(crosses(group, domains) for group in groups)
                    text = layout(tp, inner * outer, (inner, outer), pp=pp)
                    launch = launch_of("mlm", text, f"world_size={world} nvlink_domain={domain}")
                    report = check_launch(launch, (BY_ID["TOPO001"],), fixes=False)
                    assert bool(report.findings) == leaves, (domain, tp, inner, outer, replicas, pp)
                    seen[leaves] += 1
                    formula_wrong += leaves != (domain % (tp * inner) != 0)
    assert min(seen.values()) > 50, seen
    assert formula_wrong, "no layout here tells the formula from the placement"


def test_without_a_world_size_one_replica_is_enough_to_find_a_fault_and_never_to_clear_one(launch_of: LaunchOf) -> None:
    bad = launch_of("mlm", layout(4, 8, (4, 2)), "nvlink_domain=8")
    assert ids(bad) == {"TOPO001"}
    good = check_launch(launch_of("mlm", layout(2, 8, (4, 2)), "nvlink_domain=8"), (BY_ID["TOPO001"],))
    assert [item.needs for item in good.not_checked] == [("world_size",)]


@pytest.mark.parametrize(
    ("tp", "sizes", "assume", "expected"),
    [
        (1, (2, 8), "nodes=2 gpus_per_node=8", {"TOPO002"}),
        (1, (8, 2), "nodes=2 gpus_per_node=8", set()),
        (1, (4, 4), "nodes=2 gpus_per_node=8", set()),  # not reversed: the widest level is a choice
        (1, (2, 8), "nodes=1 gpus_per_node=16", set()),  # nothing leaves the node
        (2, (2, 8), "nodes=4 gpus_per_node=8", set()),  # 8 inside would leave the node
        (2, (8, 2), "nodes=4 gpus_per_node=8", {"TOPO001"}),
        (1, (4, 4), "nodes=32 gpus_per_node=4 nvlink_domain=64", {"SLURM003"}),
        (1, (8, 2), "nodes=32 gpus_per_node=4 nvlink_domain=64", set()),
        (1, (4, 4), "nodes=4 gpus_per_node=4 nvlink_domain=4", set()),
        (1, (4, 16), "nodes=32 gpus_per_node=4 nvlink_domain=32", {"TOPO002"}),
    ],
)
def test_shapes_of_the_levels(
    tp: int, sizes: tuple[int, int], assume: str, expected: set[str], launch_of: LaunchOf
) -> None:
    launch = launch_of("mlm", layout(tp, sizes[0] * sizes[1], sizes), assume)
    assert {rule_id for rule_id in ids(launch) if rule_id.startswith(("TOPO", "SLURM"))} == expected


def test_four_gpus_of_a_blackwell_node_may_be_a_tray_so_the_domain_is_asked_for(launch_of: LaunchOf) -> None:
    launch = launch_of("mlm", layout(1, 16, (4, 4)), "nodes=8 gpus_per_node=4 arch=sm100")
    assert ("nvlink_domain",) in {item.needs for item in check_launch(launch, (BY_ID["TOPO001"],)).not_checked}


@pytest.mark.parametrize(
    ("text", "assume", "expected"),
    [
        ("--tensor-model-parallel-size 8", "nodes=2 gpus_per_node=8 placement=cyclic", {"SLURM001"}),
        ("--tensor-model-parallel-size 8", "nodes=2 gpus_per_node=8 placement=block", set()),
        ("--tensor-model-parallel-size 8", "nodes=2 gpus_per_node=8 start=torchrun", set()),
        ("--tensor-model-parallel-size 8", "nodes=2 gpus_per_node=8 start=srun ntasks_per_node=8", set()),
        ("--tensor-model-parallel-size 8", "nodes=1 gpus_per_node=8 placement=cyclic", set()),
        ("--num-layers 2", "nodes=2 gpus_per_node=8 placement=cyclic", set()),
        ("--context-parallel-size 16", "nodes=2 gpus_per_node=8 placement=cyclic", set()),  # both nodes either way
        (layout(1, 16, (8, 2)), "nodes=2 gpus_per_node=8 placement=cyclic", {"SLURM001"}),
    ],
)
def test_ranks_dealt_to_the_nodes_in_turn(text: str, assume: str, expected: set[str], launch_of: LaunchOf) -> None:
    assert {rule_id for rule_id in ids(launch_of("mlm", text, assume)) if rule_id.startswith("SLURM")} == expected


@pytest.mark.parametrize(
    ("tasks", "assume", "effect"),
    [
        (8, "", None),
        (1, "", "hang"),
        (16, "", "crash"),
        (4, "world_size=8", "slow"),
        (8, "world_size=32", "hang"),
    ],
)
def test_the_ranks_that_srun_starts(tasks: int, assume: str, effect: str | None, launch_of: LaunchOf) -> None:
    launch = launch_of("mlm", "--num-layers 2", f"start=srun nodes=2 gpus_per_node=8 ntasks_per_node={tasks} {assume}")
    report = check_launch(launch, (BY_ID["SLURM002"],))
    assert [finding.effect for finding in report.findings] == ([effect] if effect else [])
