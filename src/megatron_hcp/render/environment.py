"""A job's environment, computed from what runs in it, with the reason for each value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from megatron_hcp.rules.cp.view import BLACKWELL

MEGATRON = ("mlm", "bridge", "bridge-provider")
"""Dialects whose framework needs CUDA_DEVICE_MAX_CONNECTIONS from the job; verl sets it itself."""
_RESERVED = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "VIRTUAL_ENV",
    "PATH",
    "BASH_ENV",
    "ENV",
    "IFS",
    "SHELLOPTS",
    "BASHOPTS",
)


class Variable(NamedTuple):
    """A variable to export, or to unset if `value` is None. `why` becomes a comment in the script."""

    name: str
    value: str | None
    why: str = ""


def environment_of(
    dialect: str | None,
    facts: Mapping[str, Any],
    stated: Mapping[str, str | None],
    site: Mapping[str, Any],
    origins: Mapping[str, str],
) -> tuple[Variable, ...]:
    """The variables that a job exports, in order; stated values override computed ones.

    Args:
        dialect: the launch's dialect; None without a launch (a verification job).
        facts: the launch's facts by name, and `arch`.
        stated: the site's and the user's variables.
        site: every site key's value.
        origins: where each stated variable comes from, keyed by `env.NAME`.
    """
    computed = [
        Variable("OMP_NUM_THREADS", "1", "One thread per rank in CPU libraries, because the ranks share the cores.")
    ]
    cpus_per_task = site["cpus_per_task"]
    if cpus_per_task is not None:
        computed.append(
            Variable(
                "SRUN_CPUS_PER_TASK",
                str(cpus_per_task),
                "Since Slurm 22.05, srun does not inherit --cpus-per-task from the job.",
            )
        )
    connections = _connections(dialect, facts)
    if connections is not None:
        computed.append(connections)
    computed.append(
        Variable(
            "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", "A rank whose collective failed exits instead of waiting forever."
        )
    )
    computed.append(
        Variable("PYTHONUNBUFFERED", "1", "Unbuffered, so that the last lines before a crash reach the log.")
    )
    if site["stall"] is not None:
        computed.append(
            Variable("PYTHONFAULTHANDLER", "1", "A rank that is aborted because it hangs prints its stack.")
        )
    kept = [item for item in computed if item.name not in stated]
    return (*kept, *(Variable(name, value, origins.get(f"env.{name}", "")) for name, value in stated.items()))


def reserved_in(stated: Mapping[str, str | None]) -> list[str]:
    """The stated variables that the script sets itself, or that would change how bash reads it."""
    return [name for name in stated if name in _RESERVED or name.startswith(("SLURM_", "BASH_FUNC"))]


def needs_arch(dialect: str | None, facts: Mapping[str, Any]) -> bool:
    """Whether CUDA_DEVICE_MAX_CONNECTIONS depends on the architecture and that is unknown."""
    return _wants_connections(dialect, facts) and not _overlaps(facts) and not _fsdp(facts) and not facts.get("arch")


def _wants_connections(dialect: str | None, facts: Mapping[str, Any]) -> bool:
    return dialect in MEGATRON and (
        _fsdp(facts) or _overlaps(facts) or (facts.get("tp") or 1) > 1 or (facts.get("cp") or 1) > 1
    )


def _fsdp(facts: Mapping[str, Any]) -> bool:
    return bool(facts.get("fsdp") or facts.get("torch_fsdp2"))


def _overlaps(facts: Mapping[str, Any]) -> bool:
    return bool(facts.get("overlap_moe_expert_parallel_comm"))


def _connections(dialect: str | None, facts: Mapping[str, Any]) -> Variable | None:
    """CUDA_DEVICE_MAX_CONNECTIONS: 1 keeps kernels in launch order, which TP and CP overlap relies on before Blackwell;
    FSDP and expert-parallel overlap need several."""
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    if not _wants_connections(dialect, facts):
        return None
    if _fsdp(facts):
        return Variable(
            name, None, "FSDP overlaps communication with computation, which needs more than one connection."
        )
    if _overlaps(facts):
        return Variable(name, "32", "Overlapping expert-parallel communication needs many connections.")
    if facts.get("arch") in BLACKWELL:
        return None
    return Variable(name, "1", "Before Blackwell, TP and CP overlap rely on kernels starting in launch order.")
