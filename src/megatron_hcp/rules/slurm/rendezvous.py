"""Where the launchers on several nodes rendezvous."""

from __future__ import annotations

import re

from megatron_hcp.launch.fact import ELASTIC_STARTS
from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.upstream import BRIDGE_SBATCH
from megatron_hcp.rules.view import Unknown, View


def _script(options: str) -> Example:
    started = f"torchrun --nnodes 4 --nproc-per-node 8 {options} pretrain_gpt.py --context-parallel-size 2"
    return Example("mlm", f"export CUDA_DEVICE_MAX_CONNECTIONS=1\n{started}\n")


_HERE = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def _meets(v: View) -> bool:
    """Whether a script starts launchers on several nodes that have to rendezvous."""
    stated = v.known("torchrun.nnodes") or "torchrun.nnodes" in v.launch.unknown
    return v.get("start") in ELASTIC_STARTS and stated and v.nodes > 1


def _given(v: View, name: str) -> str | None:
    """The fact of an option of torchrun, or of the variable PET_… for it; None if it isn't given.

    Raises:
        Unknown: it is given, but cannot be read.
    """
    for fact in (f"torchrun.{name}", f"env.PET_{name.upper()}"):
        if v.get(fact) is not None:
            return fact
        if fact in v.launch.unknown:
            raise Unknown(fact)
    return None


def _option(v: View, name: str) -> str | None:
    """The value of an option of torchrun. Raises: Unknown, as `_given`."""
    fact = _given(v, name)
    return None if fact is None else str(v[fact])


def _address(v: View) -> str | None:
    """The fact that holds the address at which the launchers meet; None if none is given.

    Raises:
        Unknown: it is given, but cannot be read.
    """
    return _given(v, "rdzv_endpoint") or _given(v, "master_addr")


def _is_job(v: View) -> bool:
    """Whether Slurm starts the launchers on the nodes, all with the variables of the one script that it runs."""
    return bool(v.get("srun")) or str(v.get("sbatch.nodes", 1)) != "1"


def _host(endpoint: str) -> str:
    return re.sub(r":\d+$", "", endpoint).strip("[]").lower()


@rule(
    "SLURM013",
    "error hang init",
    source=(BRIDGE_SBATCH.says("<module>", "--master_addr=", ">=0.3"),),
    applies=_meets,
    good=_script("--rdzv-backend c10d --rdzv-endpoint node1:29500"),
    bad=_script("--rdzv-backend c10d --rdzv-endpoint localhost:29500"),
)
def nodes_meet_at_one_address(v: View) -> Problem | None:
    """Launchers on several nodes rendezvous at an address that all can reach.

    localhost is a different machine on every node, and it is torchrun's default. MASTER_ADDR in the environment alone
    doesn't help: torchrun reads its options (or PET_…) and sets that variable itself. If the option is a variable with
    a default, ${MASTER_ADDR:-localhost}, whoever starts the script on each node can set it, so this is a warning. It
    stays an error in a Slurm job that starts all nodes from this script: before the job runs, nobody knows the node's
    name. An address computed by the script is assumed to be reachable from all nodes.
    """
    try:
        fact = _address(v)
    except Unknown:
        return None
    named = None if fact is None else str(v[fact])
    if named is not None and _host(named) not in _HERE:
        return None
    variable = v.get(f"default_of.{fact}")
    outside = v.fact(f"env.{variable}")
    if outside is not None and outside.origin == "assumed":
        if outside.value is not None and _host(str(outside.value)) not in _HERE:
            return None
        variable = None
    is_default = variable is not None and not _is_job(v)
    stated = "" if str(variable).isdecimal() else f", which --assume env.{variable}=HOST states"
    condition = f"if nothing sets ${variable} where the script is started: " if is_default else ""
    return Problem(
        message=f"{condition}every node waits for the others at its own address, and start-up hangs until it times out",
        severity="warning" if is_default else None,
        found=f"{v.nodes} nodes with "
        + ("no --rdzv-endpoint and no --master-addr" if named is None else f"the address {named}"),
        wanted="the name of one node, the same on all nodes, such as --rdzv-backend c10d --rdzv-endpoint HOST:29500"
        + (f", or ${variable} set there{stated}" if is_default else ""),
        facts=("torchrun.nnodes", "torchrun.rdzv_endpoint", "torchrun.master_addr"),
    )


@rule(
    "SLURM014",
    "error hang init",
    source=(BRIDGE_SBATCH.says("<module>", "--node_rank=", ">=0.3"),),
    applies=lambda v: _meets(v) and v.get("start") == "torchrun" and _option(v, "rdzv_backend") in (None, "static"),
    good=_script("--master-addr node1 --node-rank 1"),
    bad=_script("--master-addr node1"),
)
def nodes_have_ranks_of_their_own(v: View) -> Problem | None:
    """Without a rendezvous backend, every node has its own rank.

    torchrun's --node-rank is 0 unless it is given. Under srun all nodes get the same command line, so a literal number
    is the same rank everywhere. --rdzv-backend c10d assigns node ranks itself.
    """
    if any(name in v.launch.unknown for name in ("torchrun.node_rank", "env.PET_NODE_RANK")):
        return None  # a word that each node evaluates itself
    rank = _option(v, "node_rank")
    if rank is not None and not v.get("srun"):
        return None
    return Problem(
        message="all nodes use the same rank: start-up hangs until it times out",
        found=f"{v.nodes} nodes with "
        + ("no --node-rank, which is 0" if rank is None else f"--node-rank {rank} on each"),
        wanted="--node-rank $SLURM_NODEID evaluated on each node, or --rdzv-backend c10d",
        facts=("torchrun.nnodes", "torchrun.node_rank"),
    )
