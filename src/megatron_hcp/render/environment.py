"""A job's environment, computed from what runs in it, with the reason for each value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from megatron_hcp.rules.cp.view import BLACKWELL

MEGATRON = ("mlm", "bridge", "bridge-provider")
"""Dialects whose framework needs CUDA_DEVICE_MAX_CONNECTIONS from the job; verl sets it itself."""
_RESERVED = (
    "MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK VIRTUAL_ENV PATH BASH_ENV ENV IFS SHELLOPTS BASHOPTS".split()
)
_IN_ORDER = "Before Blackwell, TP and CP overlap rely on kernels starting in launch order."
ASSUMED_ARCH = "arch is not stated: 1 is what TP and CP overlap need before Blackwell, and is not needed from it on."
"""Why CUDA_DEVICE_MAX_CONNECTIONS has its value, where the launch does not say on which GPUs it runs."""


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
    computed = []
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
    return Variable(name, "1", _IN_ORDER if facts.get("arch") else ASSUMED_ARCH)
