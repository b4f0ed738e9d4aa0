"""Topology: the verdict from strides against every group, placed rank by rank."""

from __future__ import annotations

from collections.abc import Callable

from megatron_hcp.core.levels import all_levels_of
from megatron_hcp.core.placement import Placement, crosses
from megatron_hcp.core.ranks import grids_of
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.registry import BY_ID

LaunchOf = Callable[..., Launch]


def layout(tp: int, cp: int, sizes: tuple[int, int], *, pp: int = 1) -> str:
    return (
        f"--tensor-model-parallel-size {tp} --context-parallel-size {cp} --pipeline-model-parallel-size {pp} "
        f"--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes {sizes[0]} {sizes[1]}"
    )


def test_topo001_the_inner_level_is_judged_by_where_its_ranks_are_and_not_by_a_formula(launch_of: LaunchOf) -> None:
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
