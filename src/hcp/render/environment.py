"""The environment of a job, computed from what runs in it; each variable with the reason for its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hcp.rules.cp.view import BLACKWELL

MEGATRON = ("mlm", "bridge", "bridge-provider")
"""Dialects whose framework wants CUDA_DEVICE_MAX_CONNECTIONS set by the job; verl sets it itself."""
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
    """A variable to export; `value` None: to unset. `why` goes into the script as a comment."""

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
    """The variables that a job exports, in order; what is stated wins over what is computed.

    Args:
        dialect: the launch's dialect; None: no launch (a verification job).
        facts: the launch's facts by name, and `arch`.
        stated: the site's and the user's variables.
        site: every site key's value.
        origins: where the stated ones stand, as `env.NAME`.
    """
    computed = [Variable("OMP_NUM_THREADS", "1", "One thread per rank in CPU libraries: the ranks share the cores.")]
    cpus_per_task = site["cpus_per_task"]
    if cpus_per_task is not None:
        computed.append(
            Variable(
                "SRUN_CPUS_PER_TASK",
                str(cpus_per_task),
                "Since Slurm 22.05 srun does not take --cpus-per-task over from the job.",
            )
        )
    connections = _connections(dialect, facts)
    if connections is not None:
        computed.append(connections)
    computed.append(
        Variable(
            "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", "A rank whose collective failed ends instead of waiting for ever."
        )
    )
    computed.append(Variable("PYTHONUNBUFFERED", "1", "The last lines before a crash reach the log."))
    if site["stall"] is not None:
        computed.append(Variable("PYTHONFAULTHANDLER", "1", "A rank that hangs and is aborted says where it was."))
    kept = [item for item in computed if item.name not in stated]
    return (*kept, *(Variable(name, value, origins.get(f"env.{name}", "")) for name, value in stated.items()))


def reserved_in(stated: Mapping[str, str | None]) -> list[str]:
    """The variables among the stated ones that the script sets itself, or that would change how it is read."""
    return [name for name in stated if name in _RESERVED or name.startswith(("SLURM_", "BASH_FUNC"))]


def needs_arch(dialect: str | None, facts: Mapping[str, Any]) -> bool:
    """Whether CUDA_DEVICE_MAX_CONNECTIONS depends on an architecture that is not known."""
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
        return Variable(name, None, "FSDP overlaps communication with computation: it needs more than one connection.")
    if _overlaps(facts):
        return Variable(name, "32", "The overlap of expert-parallel communication needs many connections.")
    if facts.get("arch") in BLACKWELL:
        return None
    return Variable(name, "1", "Before Blackwell, TP and CP overlap rely on kernels that start in launch order.")
