"""What a job needs besides its launch. One table defines both the site file's schema and the command's options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, NamedTuple

from megatron_hcp.ground.numbers import time_limit_s
from megatron_hcp.ground.schema import ANY, Fields, Leaf, ListOf, MapOf, Shape, is_number
from megatron_hcp.ground.schema import checked as check_shape
from megatron_hcp.ground.visible import visible
from megatron_hcp.render.values import ValueType, checked


@dataclass(frozen=True)
class SiteKey:
    """One fact about the site or the job."""

    name: str
    type: ValueType
    doc: str
    default: Any = None
    choices: tuple[str, ...] = ()


KEYS: tuple[SiteKey, ...] = (
    SiteKey("nodes", "size", "number of nodes"),
    SiteKey("gpus_per_node", "size", "GPUs, and so ranks, per node"),
    SiteKey("time", "time", "time limit, as Slurm writes it: 4:00:00"),
    SiteKey("job_name", "name", "name of the job", "train"),
    SiteKey("account", "word", "account to charge"),
    SiteKey("partition", "word", "partition"),
    SiteKey("qos", "word", "quality of service"),
    SiteKey("reservation", "word", "reservation"),
    SiteKey("constraint", "word", "required node features"),
    SiteKey("exclude", "word", "nodes to exclude"),
    SiteKey("nodelist", "word", "nodes to use"),
    SiteKey("mem", "word", "memory per node; 0 = all"),
    SiteKey("cpus_per_task", "size", "CPU cores per task"),
    SiteKey("gpu_request", "choice", "how GPUs are requested", "gpus-per-node", ("gpus-per-node", "gres", "none")),
    SiteKey("gpu_type", "word", "GPU type, if the cluster has several: h100"),
    SiteKey("exclusive", "bool", "use whole nodes", True),
    SiteKey("segment", "size", "nodes that must come from one block (NVL72)"),
    SiteKey("switches", "word", "maximum number of leaf switches, COUNT or COUNT@WAIT"),
    SiteKey("signal", "size", "seconds before the time limit at which the trainer is asked to save", 600),
    SiteKey("requeue", "count", "how often the job may be requeued; never if unset"),
    SiteKey("slurm_requeue", "bool", "whether Slurm itself may start the job again: after a preemption, a lost node"),
    SiteKey("checkpoint_dir", "path", "where the trainer writes checkpoints (taken from the launch if stated there)"),
    SiteKey("free_gib", "size", "GiB that must be free in the checkpoint folder"),
    SiteKey("logs", "path", "log folder; it must exist when the job is submitted", "."),
    SiteKey("log_file", "word", "job log file, with sbatch's patterns [default: LOGS/NAME-ID.out]"),
    SiteKey("workdir", "path", "folder in which to start the training"),
    SiteKey("sbatch", "options", "more options for sbatch, such as --comment=x"),
    SiteKey("srun", "options", "more options for the training srun, such as --mpi=pmix"),
    SiteKey("python", "path", "Python interpreter with hcp and the training stack", "python3"),
    SiteKey("venv", "path", "virtual environment to activate"),
    SiteKey("modules", "texts", "modules to load"),
    SiteKey("program", "texts", "program to start (-m MODULE, or a path), if the launch does not name it"),
    SiteKey("container_runtime", "choice", "container runtime", None, ("pyxis", "apptainer")),
    SiteKey("container_image", "path", "container image"),
    SiteKey("container_workdir", "path", "working directory in the container"),
    SiteKey("container_home", "bool", "mount the home directory in the container", False),
    SiteKey("mounts", "paths", "folders to mount in the container: HOST or HOST:CONTAINER, several with commas"),
    SiteKey("shared", "paths", "folders that must be visible on every node"),
    SiteKey("env", "env", "environment variables"),
    SiteKey("arch", "word", "GPU architecture: sm80, sm90, sm100"),
    SiteKey("nvlink_domain", "size", "GPUs joined by NVLink"),
    SiteKey("facts", "map", "more facts for hcp check: te, mcore, …"),
    SiteKey("array", "array", "extra arguments for each element of a job array"),
    SiteKey("array_range", "word", "elements of a job array that all run the same command: 0-9%1 is a chain of ten"),
    SiteKey("preflight", "choice", "before training, `hcp dryrun` of the launch: EXECUTES upstream", None, ("dryrun",)),
    SiteKey("comm_test", "bool", "test the communication of every level before training", False),
    SiteKey("comm_gbps", "size", "Gbit/s that every rank must send in that test; implies comm_test"),
    SiteKey(
        "health",
        "array",
        "check of every node before training: nvidia-smi, dcgm, nvrx, primus, or a command; exit code 0 means fit, "
        "126 and 127 not run, any other code excludes the node",
    ),
    SiteKey("stall", "size", "minutes without a finished iteration after which the job counts as hung"),
    SiteKey("in_allocation", "bool", "write a script to run with bash inside salloc, instead of one for sbatch", False),
    SiteKey("max_restarts", "count", "torchrun: restarts within the job", 0),
    SiteKey("ft_timeouts", "timeouts", "ft_launcher: seconds per section", "setup:1800,step:900,checkpointing:1800"),
    SiteKey("ft_outside", "size", "ft_launcher: seconds outside the sections", 1800),
    SiteKey("ft_restarts", "count", "ft_launcher: restarts within the job", 3),
    SiteKey("verify_level", "choice", "highest step level of a verification job", "gpu", ("static", "cpu", "gpu")),
)
BY_NAME: dict[str, SiteKey] = {key.name: key for key in KEYS}


class Settled(NamedTuple):
    """Every key's value, None if not stated, and where it comes from: an option, the site file, or a launch line."""

    values: dict[str, Any]
    origins: dict[str, str]


def load_site(path: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every key's value: from the option, else from the site file, else the default; None if not stated.

    Raises:
        HcpError: the file cannot be read or is not a mapping, a key is unknown, or a value has the wrong type.
    """
    return settle_site(path, options).values


def settle_site(
    path: str | None,
    options: Mapping[str, Any],
    stated: Mapping[str, Any] = MappingProxyType({}),
    origins: Mapping[str, str] = MappingProxyType({}),
) -> Settled:
    """The same, with what the launch states (`stated`, `origins`) below the site file and above the defaults.

    Raises:
        HcpError: as `load_site`.
    """
    values, places = dict(stated), dict(origins)

    def put(name: str, value: Any, place: str) -> None:
        if isinstance(value, dict):
            places.update({f"{name}.{item}": place for item in value})
            value = {**values.get(name, {}), **value}
        values[name], places[name] = value, place

    for name, value in (_read(path) if path is not None else {}).items():
        put(name, _checked(BY_NAME[name], value, f"{visible(path or '')}: {name}"), visible(PurePath(path or "").name))
    for name, value in options.items():
        if value is None or value == ():
            continue
        option = "--" + name.replace("_", "-")
        if name == "gpus_per_node" and (typed := _TYPED_GPUS.match(str(value))):
            put("gpu_type", _checked(BY_NAME["gpu_type"], typed[1], option), option)
            value = typed[2]
        put(name, _checked(BY_NAME[name], value, option), option)
    return Settled({key.name: values.get(key.name, key.default) for key in KEYS}, places)


_TYPED_GPUS = re.compile(r"([A-Za-z][\w.-]*):(\d+)\Z")


def limit_s(site: Mapping[str, Any]) -> int | None:
    """Seconds of the site's time limit; None if it has none, as with Slurm's `--time=0`."""
    return None if site["time"] is None else time_limit_s(site["time"]) or None


def _checked(key: SiteKey, value: Any, where: str) -> Any:
    return checked(key.type, value, where, key.choices)


ASSUMABLE = ("arch", "nvlink_domain", "nodes", "gpus_per_node")
"""The keys of a site that are facts of `hcp check` too, by the same names."""


def site_assumptions(site: Mapping[str, Any]) -> tuple[str, ...]:
    """A site's facts about the cluster and its software, among them its image, as `--assume` texts."""
    stated = {name: site[name] for name in ASSUMABLE}
    stated |= {"image": site["container_image"]} | (site["facts"] or {})
    # A path with a space can't be written as an assumption, and isn't the name of a listed image.
    return tuple(f"{name}={value}" for name, value in stated.items() if value is not None and " " not in str(value))


_SCALAR = Leaf("text or a number", lambda value: isinstance(value, str | bool) or is_number(value))
_WORDS = Leaf(
    "words as one text, or a list of texts",
    lambda item: isinstance(item, str) or (isinstance(item, list) and all(map(_SCALAR.holds, item))),
)


def _shape(key: SiteKey, value: Any) -> Shape:
    """The form of a value, before `checked` judges its content; forms that an option may also have are left to that."""
    if key.type in ("map", "env") and isinstance(value, dict):
        return MapOf(Leaf(_SCALAR.wanted, lambda item: item is None or _SCALAR.holds(item)))
    if key.type in ("texts", "paths", "options") and isinstance(value, list):
        return ListOf(_SCALAR)
    if key.type == "array" and isinstance(value, list):
        return ListOf(_WORDS)
    return ANY if isinstance(value, list | dict) and key.type in _OF_PARTS else _SCALAR


_OF_PARTS = ("texts", "paths", "options", "map", "env", "array")


def _read(path: str) -> dict[str, Any]:
    from megatron_hcp.ground.files import read_text
    from megatron_hcp.launch.forms.yaml.settings import load_plain, numbers_as_written

    text = read_text(path, "a site file", pipes=True)
    data = load_plain(text, visible(path), "a site file", may_be_empty=True)
    shape = Fields(optional={key.name: _shape(key, data.get(key.name)) for key in KEYS})
    check_shape(data, shape, path)
    facts = data.get("facts")
    if isinstance(facts, dict) and any(isinstance(value, float) for value in facts.values()):
        written = numbers_as_written(text, visible(path))
        data["facts"] = {name: written.get(f"facts.{name}", value) for name, value in facts.items()}
    return {name: value for name, value in data.items() if value is not None}
