"""Which ranks srun starts: directly, or through a launcher on each node."""

from __future__ import annotations

from megatron_hcp.launch.fact import ELASTIC_STARTS
from megatron_hcp.rules.rule import Effect, Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, BRIDGE_SBATCH
from megatron_hcp.rules.view import View

_ONE_DRIVER = ("nemo-rl", "slime")
"""Frameworks, by dialect, whose one driver has Ray start the ranks: srun's tasks are not ranks."""


@rule(
    "SLURM002",
    "error hang init",
    source=(ARGUMENTS.says("parse_args", """args.world_size = int(os.getenv("WORLD_SIZE", '1'))""", ">=0.12"),),
    applies=lambda v: v.get("start") == "srun" and v.launch.dialect not in _ONE_DRIVER,
    good=Example("mlm", "--context-parallel-size 2", "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=8"),
    bad=Example("mlm", "--context-parallel-size 2", "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=1"),
)
def srun_starts_all_ranks(v: View) -> Problem | None:
    """srun starts as many ranks as the launch expects.

    With srun each task is a rank. With fewer tasks than the job expects, the ranks wait in init_process_group, or GPUs
    stay idle; with more tasks, two ranks share a GPU.
    """
    tasks, gpus = v.ntasks_per_node, v.gpus_per_node
    started = v.nodes * tasks
    if started == v.world_size and tasks == gpus:
        return None
    effect: Effect = "hang" if started < v.world_size else "slow" if tasks < gpus else "crash"
    messages = {
        "hang": "ranks are missing: start-up waits for them until it times out",
        "slow": "GPUs stay idle: there are fewer tasks than GPUs on a node",
        "crash": "more ranks start than there are GPUs or slots for them",
    }
    return Problem(
        message=messages[effect],
        found=f"{v.nodes} nodes x {tasks} tasks = {started} ranks, for a job of {v.world_size} with {gpus} GPUs per "
        f"node",
        wanted="one Slurm task per GPU: nodes x ntasks-per-node equal to the number of ranks",
        facts=("ntasks_per_node", "nodes", "world_size"),
        # If no number changes, there is no fix: the engine drops it.
        fixes=(
            Fix({"ntasks_per_node": gpus}, "one task per GPU"),
            Fix({"gpus_per_node": max(tasks, gpus)}, "one GPU per task"),
        ),
        severity="warning" if effect == "slow" else "error",
        effect=effect,
    )


@rule(
    "SLURM004",
    "error crash init",
    source=(BRIDGE_SBATCH.says("<module>", "--nproc_per_node=$SLURM_GPUS_PER_NODE", ">=0.3"),),
    applies=lambda v: v.get("start") in ELASTIC_STARTS and bool(v.get("srun")),
    good=Example(
        "mlm",
        "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"
        "srun torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=node1:29500 pretrain_gpt.py "
        "--micro-batch-size 1\n",
    ),
    bad=Example(
        "mlm",
        "#SBATCH --nodes=2\n#SBATCH --ntasks=16\n"
        "srun torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=node1:29500 pretrain_gpt.py "
        "--micro-batch-size 1\n",
    ),
)
def one_launcher_per_node(v: View) -> Problem | None:
    """There is one launcher per node if torchrun starts the ranks.

    srun starts its command once per task, and torchrun starts one process per GPU each time. Eight torchrun tasks with
    eight processes each are 64 on a node: the first takes the rendezvous port and the others fail with EADDRINUSE, or
    join as nodes that don't exist. One task per GPU is right only where srun starts the ranks themselves.
    """
    fix = Fix({"ntasks_per_node": 1}, "one launcher per node")
    stated = next((name for name in ("srun.ntasks", "sbatch.ntasks") if v.known(name)), None)
    if not v.known("ntasks_per_node") and stated is not None:
        total, nodes = str(v[stated]), v.nodes or 1
        fix = Fix({stated: str(nodes)}, "one launcher per node")
        tasks = -(-int(total[:9]) // nodes) if total.isdecimal() else None
    elif not v.known("ntasks_per_node") and not _may_be_written(v):
        return None  # Slurm's own default: one task per node
    else:
        tasks = v.ntasks_per_node
    if tasks in (None, 1):
        return None
    processes = tasks * (v.get("gpus_per_node") or 1)
    return Problem(
        message=f"{tasks} launchers start on every node: {processes} processes instead of one per GPU; all but one "
        f"launcher fail with EADDRINUSE, or ranks are counted twice",
        found=f"{v.start} under srun with {tasks} tasks per node",
        wanted=f"one task per node: {v.start} starts the node's ranks itself",
        facts=("ntasks_per_node", stated or "srun.ntasks"),
        fixes=(fix,),
    )


def _may_be_written(v: View) -> bool:
    """Whether the launch sets the number of tasks in another way, or in words that are not seen."""
    others = [f"{program}.{name}" for program in ("srun", "sbatch") for name in ("ntasks_per_gpu", "unseen")]
    names = ("ntasks_per_node", "srun.ntasks", "sbatch.ntasks")
    return v.get("start") != "torchrun" or any(map(v.known, others)) or any(name in v.launch.unknown for name in names)
