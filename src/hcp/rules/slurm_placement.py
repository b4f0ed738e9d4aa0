"""How Slurm starts the ranks: how many, and on which nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from hcp.core.placement import Placement
from hcp.rules.comm import two_levels, uses_cp, uses_hcp
from hcp.rules.rule import Effect, Example, Fix, Problem, View, rule
from hcp.rules.topology import dense_mesh, inner_groups
from hcp.rules.upstream import ARGUMENTS, PARALLEL_STATE

_ENOUGH = 2_000


def _close_groups(v: View) -> tuple[str, Iterable[Sequence[int]]]:
    """The groups that need NVLink most: tensor parallel, else the inner level, else the CP groups."""
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
    severity="warning",
    effect="slow",
    stage="never",
    source=(PARALLEL_STATE.says("initialize_model_parallel", 'order: str = "tp-cp-ep-dp-pp"', ">=0.12"),),
    applies=lambda v: v.kind != "verl" and v.get("nodes", 1) > 1 and (v.tp > 1 or uses_cp(v)),
    good=Example(
        "mlm", "--tensor-model-parallel-size 8 --context-parallel-size 2", "nodes=2 gpus_per_node=8 placement=block"
    ),
    bad=Example(
        "mlm", "--tensor-model-parallel-size 8 --context-parallel-size 2", "nodes=2 gpus_per_node=8 placement=cyclic"
    ),
)
def ranks_fill_nodes_in_order(v: View) -> Problem | None:
    """Ranks fill one node after the other.

    megatron-core takes adjacent ranks for close ones: tensor-parallel and inner CP groups are adjacent in the
    numbering. With srun --distribution=cyclic rank r is on node r modulo the number of nodes, so exactly those
    groups cross the network, and layouts that are right on paper are slow. Nothing logs it.
    """
    if v.placement != "cyclic" or v.world_size <= v.gpus_per_node or v.world_size % v.gpus_per_node:
        return None
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
                fixes=(Fix({"placement": "block"}, "ranks fill one node after the other"),),
            )
    return None


@rule(
    "SLURM002",
    severity="error",
    effect="hang",
    stage="init",
    source=(ARGUMENTS.says("parse_args", """args.world_size = int(os.getenv("WORLD_SIZE", '1'))""", ""),),
    applies=lambda v: v.get("start") == "srun",
    good=Example("mlm", "--context-parallel-size 2", "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=8"),
    bad=Example("mlm", "--context-parallel-size 2", "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=1"),
)
def srun_starts_all_ranks(v: View) -> Problem | None:
    """srun starts as many ranks as the launch counts on.

    With srun each task is a rank. With fewer tasks than the job counts on, the others wait in init_process_group,
    or GPUs stay idle; more tasks put two ranks on a GPU.
    """
    tasks, gpus = v.ntasks_per_node, v.gpus_per_node
    started = v.nodes * tasks
    if started == v.world_size and tasks == gpus:
        return None
    effect: Effect = "hang" if started < v.world_size else "slow" if tasks < gpus else "crash"
    messages = {
        "hang": "ranks are missing: start-up waits for them until its timeout",
        "slow": "GPUs stay idle: there are fewer tasks than GPUs on a node",
        "crash": "more ranks start than there are GPUs or places for them",
    }
    return Problem(
        message=messages[effect],
        found=f"{v.nodes} nodes x {tasks} tasks = {started} ranks, for a job of {v.world_size} with {gpus} GPUs a node",
        wanted="one Slurm task per GPU: nodes x ntasks-per-node equal to the number of ranks",
        facts=("ntasks_per_node", "nodes", "world_size"),
        fixes=(Fix({"ntasks_per_node": gpus}, "one task per GPU"),) if tasks != gpus else (),
        severity="warning" if effect == "slow" else "error",
        effect=effect,
    )


RULES = (ranks_fill_nodes_in_order, srun_starts_all_ranks)
