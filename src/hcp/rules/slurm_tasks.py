"""How many launchers Slurm starts per node."""

from __future__ import annotations

from hcp.rules.rule import Example, Fix, Problem, View, rule
from hcp.rules.upstream import BRIDGE_SBATCH


@rule(
    "SLURM004",
    severity="error",
    effect="crash",
    stage="init",
    source=(BRIDGE_SBATCH.says("<module>", "--nproc_per_node=$SLURM_GPUS_PER_NODE", ""),),
    applies=lambda v: v.get("start") in ("torchrun", "ft_launcher") and bool(v.get("srun")),
    good=Example(
        "mlm",
        "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"
        "srun torchrun --nnodes=2 --nproc-per-node=8 pretrain_gpt.py --micro-batch-size 1\n",
    ),
    bad=Example(
        "mlm",
        "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"
        "srun torchrun --nnodes=2 --nproc-per-node=8 pretrain_gpt.py --micro-batch-size 1\n",
    ),
)
def one_launcher_per_node(v: View) -> Problem | None:
    """One launcher per node where torchrun starts the ranks.

    srun starts its command once per task, and torchrun starts one process per GPU each time. Eight tasks of
    torchrun with eight processes are 64 on a node: the first takes the rendezvous port and the others stop with
    EADDRINUSE, or join as nodes that do not exist. One task per GPU is right only where srun starts the ranks
    themselves.
    """
    if not v.known("ntasks_per_node") and v.known("srun.ntasks"):
        total, nodes = str(v["srun.ntasks"]), v.nodes or 1
        tasks = -(-int(total[:9]) // nodes) if total.isdecimal() else None
    else:
        tasks = v.ntasks_per_node
    if tasks in (None, 1):
        return None
    processes = tasks * (v.get("gpus_per_node") or 1)
    return Problem(
        message=f"{tasks} launchers start on every node: {processes} processes instead of one per GPU, and all but one "
        "stop with EADDRINUSE, or ranks are counted twice",
        found=f"{v.start} under srun with {tasks} tasks per node",
        wanted=f"one task per node: {v.start} starts the node's ranks itself",
        facts=("ntasks_per_node", "srun.ntasks"),
        fixes=(Fix({"ntasks_per_node": 1}, "one launcher per node"),),
    )


RULES = (one_launcher_per_node,)
