"""The #SBATCH lines of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hcp.core.errors import HcpError

Directive = tuple[str, Any]
"""An option of sbatch and its value; None: the option takes none."""


def directives_of(start: str, site: Mapping[str, Any]) -> tuple[Directive, ...]:
    """The directives, in the order in which they are written.

    Raises:
        HcpError: the folder of the logs has a path that no directive can hold.
    """
    per_node = site["gpus_per_node"]
    log_name = "%x-%A_%a" if site["array"] else "%x-%j"
    stated: list[Directive] = [
        ("job-name", site["job_name"]),
        ("account", site["account"]),
        ("partition", site["partition"]),
        ("qos", site["qos"]),
        ("reservation", site["reservation"]),
        ("constraint", site["constraint"]),
        ("nodelist", site["nodelist"]),
        ("exclude", site["exclude"]),
        ("nodes", site["nodes"]),
        ("ntasks-per-node", per_node if start == "srun" else 1),
        ("gres", f"gpu:{per_node}" if site["gpu_request"] == "gres" else None),
        ("gpus-per-node", per_node if site["gpu_request"] == "gpus-per-node" else None),
        ("cpus-per-task", site["cpus_per_task"]),
        ("mem", site["mem"]),
        ("distribution", "block"),
        ("segment", site["segment"]),
        ("switches", site["switches"]),
        ("time", site["time"]),
        ("output", f"{_plain_path(site['logs'])}/{log_name}.out"),
        ("signal", f"B:USR1@{site['signal']}"),
        ("array", f"0-{len(site['array']) - 1}" if site["array"] else None),
    ]
    flags = [
        *(["exclusive"] if site["exclusive"] else []),
        "requeue" if site["requeue"] else "no-requeue",
    ]
    return (
        *((name, value) for name, value in stated if value is not None),
        *((name, None) for name in flags),
        ("open-mode", "append"),
    )


def _plain_path(path: str) -> str:
    if (
        any(character in path for character in " \t\r\n\"'\\%#$`")
        or path.startswith("-")
        or not (path.isascii() and path.isprintable())
    ):
        raise HcpError(
            f"logs: found {path[:60]!r}; wanted a path of plain characters: Slurm's directives have no "
            "quoting; choose another folder"
        )
    return path.rstrip("/") or "/"
