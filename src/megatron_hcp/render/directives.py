"""The #SBATCH lines of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.render.starts import Start


class Directive(NamedTuple):
    """An option of sbatch; `value` is None if it takes none, and `origin` says where it comes from."""

    name: str
    value: Any
    origin: str


def directives_of(start: Start, site: Mapping[str, Any], origins: Mapping[str, str]) -> tuple[Directive, ...]:
    """The directives, in the order in which they are written; `origins` come from `settle_site`.

    Raises:
        HcpError: a directive cannot express the log folder's path, or an extra option is one that the job sets itself.
    """
    per_node = site["gpus_per_node"]
    gpus = f"{site['gpu_type']}:{per_node}" if site["gpu_type"] else per_node
    log_name = "%x-%A_%a" if site["array"] or site["array_range"] else "%x-%j"
    array = f"0-{len(site['array']) - 1}" if site["array"] else site["array_range"]
    stated: list[tuple[str, Any, str]] = [
        ("job-name", site["job_name"], "job_name"),
        *((name, site[name], name) for name in ("account", "partition", "qos", "reservation", "constraint")),
        *((name, site[name], name) for name in ("nodelist", "exclude", "nodes")),
        ("ntasks-per-node", per_node if start.tasks_are_ranks else 1, ""),
        ("gres", f"gpu:{gpus}" if site["gpu_request"] == "gres" else None, "gpus_per_node"),
        ("gpus-per-node", gpus if site["gpu_request"] == "gpus-per-node" else None, "gpus_per_node"),
        ("cpus-per-task", site["cpus_per_task"], "cpus_per_task"),
        ("mem", site["mem"], "mem"),
        ("distribution", "block", ""),
        *((name, site[name], name) for name in ("segment", "switches", "time")),
        (
            "output",
            site["log_file"] or f"{_plain_path(site['logs'])}/{log_name}.out",
            "log_file" if site["log_file"] else "logs",
        ),
        ("signal", f"B:USR1@{site['signal']}", "signal"),
        ("array", array, "array" if site["array"] else "array_range"),
    ]
    found = [Directive(name, value, _origin(key, origins)) for name, value, key in stated if value is not None]
    if site["exclusive"]:
        found.append(Directive("exclusive", None, _origin("exclusive", origins)))
    is_stated = site["requeue"] is not None
    if is_stated or site["slurm_requeue"] is not None:  # else the cluster's own setting holds
        name = "requeue" if (site["requeue"] if is_stated else site["slurm_requeue"]) else "no-requeue"
        found.append(Directive(name, None, _origin("requeue" if is_stated else "slurm_requeue", origins)))
    found.append(Directive("open-mode", "append", _origin("", origins)))
    for option in site["sbatch"] or ():
        name, _, value = option.removeprefix("--").partition("=")
        if name in _OWN or any(name == directive.name for directive in found):
            raise HcpError(
                f"sbatch: found {option}, which the job sets itself", wanted="only other options", do="leave it out"
            )
        found.append(Directive(name, value or None, _origin("sbatch", origins)))
    if site["in_allocation"]:
        return tuple(directive for directive in found if directive.name not in _OF_SBATCH)
    return tuple(found)


_OWN = ("ntasks", "gpus", "gpus-per-task", "gres", "gpus-per-node", "error", "requeue", "no-requeue", "array", "wrap")


_OF_SBATCH = ("output", "signal", "requeue", "no-requeue", "open-mode", "array")
"""Options that have no meaning inside an allocation, where bash starts the script."""


def _origin(key: str, origins: Mapping[str, str]) -> str:
    return origins.get(key, "default") if key else "hcp"


def _plain_path(path: str) -> str:
    if (
        any(character in path for character in " \t\r\n\"'\\%#$`")
        or path.startswith("-")
        or not (path.isascii() and path.isprintable())
    ):
        raise HcpError(
            f"logs: found {path[:60]!r}",
            wanted="a path of plain characters: Slurm's directives have no quoting",
            do="choose another folder",
        )
    return path.rstrip("/") or "/"
