"""Environment variables that belong to debugging, not to a training job."""

from __future__ import annotations

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.rules.rule import Effect, Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import NVRX_LAUNCHER, SLIME_DEBUG
from megatron_hcp.rules.view import View


class _Leftover(NamedTuple):
    """A variable, the value that debugging gives it, and what that does."""

    name: str
    value: str
    effect: Effect
    does: str


_LEFTOVERS = (
    # torch: ErrorHandlingMode.NoHandling in ProcessGroupNCCL.hpp; both spellings are read.
    _Leftover("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "hang", "a rank that fails leaves the others waiting for ever"),
    _Leftover("NCCL_ASYNC_ERROR_HANDLING", "0", "hang", "a rank that fails leaves the others waiting for ever"),
    _Leftover("CUDA_LAUNCH_BLOCKING", "1", "slow", "each kernel is waited for: no communication overlaps computation"),
    _Leftover("TORCH_NCCL_BLOCKING_WAIT", "1", "slow", "the CPU waits for each collective: nothing overlaps it"),
    _Leftover("NCCL_BLOCKING_WAIT", "1", "slow", "the CPU waits for each collective: nothing overlaps it"),
    # NCCL's user guide, Environment Variables.
    _Leftover("NCCL_P2P_DISABLE", "1", "slow", "GPUs of a node exchange data through host memory, not NVLink"),
    _Leftover(
        "NCCL_IB_DISABLE", "1", "slow", "nodes exchange data over IP sockets, even where InfiniBand or RoCE exists"
    ),
    _Leftover("NCCL_SHM_DISABLE", "1", "slow", "GPUs without peer access exchange data over the network"),
)
_ON_SOME_MACHINES = ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE")
"""Variables that a machine may need: one without InfiniBand, or with GPUs that cannot reach each other."""


def _left(v: View) -> list[_Leftover]:
    return [one for one in _LEFTOVERS if str(v.get(f"env.{one.name}")) == one.value]


@rule(
    "ENV008",
    "warning slow training",
    source=(
        NVRX_LAUNCHER.says("LocalElasticAgent._start_workers", '"TORCH_NCCL_ASYNC_ERROR_HANDLING", str(1)', ">=0.4"),
        SLIME_DEBUG.says("", "Enable `CUDA_LAUNCH_BLOCKING=1`", ">=0.2"),
    ),
    applies=lambda v: any(v.known(f"env.{one.name}") for one in _LEFTOVERS),
    good=Example("mlm", "--context-parallel-size 2", "nodes=2 env.NCCL_IB_DISABLE=0"),
    bad=Example("mlm", "--context-parallel-size 2", "nodes=2 env.CUDA_LAUNCH_BLOCKING=1"),
)
def no_variable_is_left_over_from_debugging(v: View) -> Problem | None:
    """CP on several nodes runs without variables that are meant for debugging.

    CP sends keys and values in every layer, so a transport that is turned off, or a CPU that waits for each kernel,
    costs more than elsewhere; without asynchronous error handling a failed rank holds the whole job until its time
    limit. NCCL's guide says that such variables should not stay in scripts. NCCL_IB_DISABLE=1 is right where there is
    no InfiniBand or RoCE, and NCCL_P2P_DISABLE=1 or NCCL_SHM_DISABLE=1 where a machine needs it: accept it there.
    """
    left = _left(v)
    if not left or v.cp == 1 or v.nodes == 1:
        return None
    first = left[0]
    machines = any(one.name in _ON_SOME_MACHINES for one in left)
    return Problem(
        message=f"{first.name}={first.value} is for debugging: {first.does}",
        found=" ".join(f"{one.name}={one.value}" for one in left) + f" with CP {v.cp} on {v.nodes} nodes",
        wanted="unset" + (", unless these machines need it" if machines else ""),
        facts=(f"env.{first.name}", "cp", "nodes"),
        fixes=(Fix({f"env.{one.name}": None for one in left}, "the default"),),
        effect=first.effect,
    )
