"""Where Slurm places ranks: node after node, and inside NVLink domains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from megatron_hcp.rules.cp.view import level_sizes, uses_cp
from megatron_hcp.rules.hcp.launches import LEVELS
from megatron_hcp.rules.hcp.view import runs_hcp, two_levels, uses_hcp
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.topo.view import dense_mesh, inner_groups, suits_inner_level
from megatron_hcp.rules.upstream import PARALLEL_STATE
from megatron_hcp.rules.view import View

_ENOUGH = 2_000


def _close_groups(v: View) -> tuple[str, Iterable[Sequence[int]]]:
    """The groups that need NVLink most: tensor-parallel, else the inner level, else the CP groups."""
    mesh = dense_mesh(v, v.world_size)
    if mesh is None:
        return "", ()
    if v.tp > 1:
        return "tensor-parallel", mesh.groups("tp")
    levels = two_levels(v) if uses_hcp(v) else None
    if levels is not None:
        return "inner all-to-all", inner_groups(mesh, levels[0])
    return "context-parallel", mesh.groups("cp")


@rule(
    "SLURM001",
    "warning slow never",
    source=(PARALLEL_STATE.says("initialize_model_parallel", 'order: str = "tp-cp-ep-dp-pp"', ">=0.12"),),
    applies=lambda v: v.dialect != "verl" and v.get("nodes", 1) > 1 and (v.tp > 1 or uses_cp(v)),
    good=Example(
        "mlm", "--tensor-model-parallel-size 8 --context-parallel-size 2", "nodes=2 gpus_per_node=8 placement=block"
    ),
    bad=Example(
        "mlm", "--tensor-model-parallel-size 8 --context-parallel-size 2", "nodes=2 gpus_per_node=8 placement=cyclic"
    ),
)
def ranks_fill_nodes_in_order(v: View) -> Problem | None:
    """Ranks are placed block by block, filling one node after another.

    megatron-core assumes that adjacent ranks are close: tensor-parallel and inner CP groups are adjacent in the
    numbering. With srun --distribution=cyclic, rank r is on node r modulo the number of nodes, so exactly those groups
    cross the network, and layouts that look right on paper are slow. Nothing is logged.
    """
    if v.placement != "cyclic" or v.world_size <= v.gpus_per_node or v.world_size % v.gpus_per_node:
        return None
    from megatron_hcp.core.placement import Placement  # here, so that other launches don't pay for it

    name, groups = _close_groups(v)
    block = Placement(v.world_size, v.gpus_per_node)
    cyclic = Placement(v.world_size, v.gpus_per_node, kind="cyclic")
    for members in islice(groups, _ENOUGH):
        group = list(islice(members, 64))
        here, there = {block.node_of(rank) for rank in group}, {cyclic.node_of(rank) for rank in group}
        if len(there) > len(here):
            return Problem(
                message=f"neighbouring ranks are on different nodes: the {name} groups cross the network",
                found=f"placement cyclic: ranks {', '.join(map(str, group[:16]))} are on {len(there)} nodes, "
                f"by block on {len(here)}",
                wanted="srun --distribution=block (Slurm's default)",
                facts=("placement",),
                fixes=(Fix({"placement": "block"}, "ranks fill one node after another"),),
            )
    return None


@rule(
    "SLURM003",
    "warning slow never",
    source=(PARALLEL_STATE.says("create_hierarchical_groups", "s=hierarchical_group_sizes[level],", ">=0.13"),),
    applies=runs_hcp,
    good=Example("mlm", f"--context-parallel-size 16 {LEVELS} 8 2", "nodes=32 gpus_per_node=4 nvlink_domain=8"),
    bad=Example("mlm", f"--context-parallel-size 16 {LEVELS} 4 4", "nodes=32 gpus_per_node=4 nvlink_domain=64"),
)
def inner_level_uses_the_nvlink_domain(v: View) -> Problem | None:
    """The inner level is sized for the NVLink domain, not the tray.

    On GB200 and GB300 racks a Slurm node is a tray of 4 GPUs, while NVLink connects up to 72. An inner size chosen for
    the tray leaves most of the hierarchy on the ring.
    """
    levels = two_levels(v)
    if levels is None or v.nvlink_domain <= v.gpus_per_node:
        return None
    inner, outer = levels
    if inner * v.tp != v.gpus_per_node or (outer > inner and suits_inner_level(v, outer)):
        return None  # not sized for the tray, or TOPO002's
    better = level_sizes(v)
    if better is None or better[0] <= inner or not suits_inner_level(v, better[0]):
        return None
    return Problem(
        message=f"the inner all-to-all spans only the tray; NVLink connects {v.nvlink_domain} GPUs",
        found=f"inner size {inner}, tensor_model_parallel_size {v.tp}, {v.gpus_per_node} GPUs per node",
        wanted=f"an inner size for the NVLink domain: {better[0]}",
        facts=("hcp_sizes", "gpus_per_node", "nvlink_domain"),
        fixes=(Fix({"hcp_sizes": better}, f"all-to-all over {better[0]} ranks inside the NVLink domain"),),
    )
