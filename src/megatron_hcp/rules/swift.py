"""ms-swift: what `megatron sft|pt|rlhf` checks in its arguments before Megatron does."""

from __future__ import annotations

from megatron_hcp.core.shards import round_up
from megatron_hcp.rules.cp.view import micro_batches_that_divide
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import MS_SWIFT_ARGUMENTS
from megatron_hcp.rules.view import View

_CONNECTIONS = "env.CUDA_DEVICE_MAX_CONNECTIONS"
_CP = "--model x --context_parallel_size 4 --micro_batch_size 2"


def _is_swift(v: View) -> bool:
    return v.dialect == "ms-swift"


@rule(
    "SWIFT001",
    "error crash init",
    source=(
        MS_SWIFT_ARGUMENTS.says("MegatronArguments._init_distributed", "is not divisible by micro batch size", ">=4.3"),
    ),
    applies=_is_swift,
    good=Example("ms-swift", f"{_CP} --global_batch_size 16", "nodes=2 gpus_per_node=8"),
    bad=Example("ms-swift", f"{_CP} --global_batch_size 12", "nodes=2 gpus_per_node=8"),
)
def global_batch_divides_into_micro_batches(v: View) -> Problem | None:
    """ms-swift's global batch size is divisible by micro-batch size x DP size.

    The data-parallel size is what TP, PP and CP leave of the ranks, so changing the CP size may break a batch size that
    was fine. The global batch size defaults to 16.
    """
    model = v.tp * v.pp * v.cp
    if None in (v.global_batch_size, v.micro_batch_size) or v.world_size % model:
        return None  # TOPO003
    dp = v.world_size // model
    unit = dp * v.micro_batch_size
    if v.global_batch_size % unit == 0:
        return None
    size = round_up(v.global_batch_size, unit)
    return Problem(
        message="the global batch cannot be split over the ranks in micro-batches: start-up fails",
        found=f"global_batch_size {v.global_batch_size} at DP {dp} x micro-batch {v.micro_batch_size}",
        wanted=f"a multiple of {unit}",
        facts=("global_batch_size", "micro_batch_size", "cp", "world_size"),
        fixes=(
            *(
                micro_batches_that_divide(v.global_batch_size // dp, v.micro_batch_size)
                if v.global_batch_size % dp == 0
                else ()
            ),
            Fix({"global_batch_size": size}, f"{size} sequences per step"),
        ),
    )


@rule(
    "SWIFT002",
    "error crash config",
    source=(
        MS_SWIFT_ARGUMENTS.says(
            "MegatronArguments._check_megatron_fsdp",
            "Megatron-FSDP requires `CUDA_DEVICE_MAX_CONNECTIONS > 1`",
            ">=4.4.3",
        ),
        MS_SWIFT_ARGUMENTS.says("MegatronArguments.__post_init__", "'CUDA_DEVICE_MAX_CONNECTIONS', '1'", ">=4.0"),
    ),
    applies=lambda v: (
        _is_swift(v) and bool(v.fsdp) and not v.launch.reading.unseen and _CONNECTIONS not in v.launch.unknown
    ),
    good=Example("ms-swift", "--model x --use_megatron_fsdp true", "env.CUDA_DEVICE_MAX_CONNECTIONS=32"),
    bad=Example("ms-swift", "--model x --use_megatron_fsdp true"),
)
def fsdp_has_several_connections(v: View) -> Problem | None:
    """Megatron-FSDP runs with CUDA_DEVICE_MAX_CONNECTIONS above 1.

    ms-swift itself sets the variable to 1 if it is unset, and then rejects that under --use_megatron_fsdp: the launch
    has to export another value.
    """
    found = v.get(_CONNECTIONS)
    if found not in (None, "1"):
        return None
    return Problem(
        message="ms-swift rejects Megatron-FSDP with the value that it sets itself: start-up fails",
        found=f"use_megatron_fsdp with CUDA_DEVICE_MAX_CONNECTIONS {'not set' if found is None else found}",
        wanted="a value above 1, such as 32",
        facts=("fsdp", _CONNECTIONS),
        fixes=(Fix({_CONNECTIONS: "32"}, "32 connections"),),
    )
