"""Where a job can run besides a script for sbatch, what each target carries of it, and what it must refuse."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Dialect
from megatron_hcp.render.site import BY_NAME
from megatron_hcp.render.starts import ONLY_START, STARTS
from megatron_hcp.render.words import Fate

_MARKS: dict[str, Fate] = {"=": "carried", "~": "rewritten", "-": "left out", "!": "refused"}
RAY_DIALECTS = tuple(name for name, start in ONLY_START.items() if start == "ray")


class Target(NamedTuple):
    """`column`: its column of keys.txt. `needs`: the keys without which there is no job, and what for."""

    name: str
    title: str
    starts: tuple[str, ...]
    column: int | None = None
    needs: Mapping[str, str] = MappingProxyType({})

    @property
    def is_slurm_script(self) -> bool:
        return self.column is None


_SIZES = {"nodes": "the size of the job", "gpus_per_node": "the ranks of a node"}
_TIME = {"time": "ray.sub's own limit is an hour"}
_IMAGE = {"container_image": "a pod runs an image"}
_LOGS = {"logs": "a folder on a volume of all pods, where they meet"}
_POD_STARTS = ("torchrun", "ft_launcher")
SLURM = Target("slurm", "a script for sbatch", (*STARTS,), None, _SIZES)
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        SLURM,
        Target("trainjob", "a TrainJob of Kubeflow", _POD_STARTS, 0, _SIZES | _IMAGE | _LOGS),
        Target("jobset", "a JobSet", _POD_STARTS, 0, _SIZES | _IMAGE | _LOGS),
        Target("rayjob", "a RayJob of KubeRay", ("ray",), 1, _SIZES | _IMAGE),
        Target("ray-sub", "a script around NeMo-RL's ray.sub", ("ray",), 2, _SIZES | _TIME | _IMAGE),
    )
}


class KeyFate(NamedTuple):
    """What a target does with a key, and where it is then, or why it isn't anywhere."""

    fate: Fate
    text: str


@cache
def key_fates() -> Mapping[str, tuple[KeyFate, ...]]:
    """keys.txt: key -> what it becomes, by column."""
    table = {}
    for line in Path(__file__).with_name("keys.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            key, *cells = line.split(" | ")
            table[key] = tuple(KeyFate(_MARKS[cell[0]], cell[2:]) for cell in cells)
    return table


def fate_of(key: str, target: Target) -> KeyFate:
    """What a key of the site becomes on a target."""
    if target.column is None:
        return KeyFate("carried", key)
    return key_fates()[key][target.column]


def carried_by(target: Target, site: Mapping[str, Any]) -> dict[str, Any]:
    """The site without what the target leaves out, so that none of it can show in the job."""
    return {
        name: BY_NAME[name].default if fate_of(name, target).fate == "left out" else value
        for name, value in site.items()
    }


def start_on(target: Target, start: str | None, site: dict[str, Any]) -> str | None:
    """What starts the ranks on a target: a pod has one launcher, where Slurm starts every rank with CPUs of its own."""
    if target.is_slurm_script or start not in ("srun", None) or "torchrun" not in target.starts:
        return start
    if start == "srun" and site["cpus_per_task"] and site["gpus_per_node"]:
        site["cpus_per_task"] *= site["gpus_per_node"]
    return "torchrun"


def refuse_on(target: Target, dialect: Dialect | None, start: str | None, site: Mapping[str, Any]) -> None:
    """Returns if the target can carry the launch.

    Raises:
        HcpError: it cannot, with the reason; nothing that is missing is asked for before that.
    """
    if target.is_slurm_script:
        return
    if start == "verify":
        raise HcpError(f"found --start verify with --target {target.name}", wanted="a launch", do="use --target slurm")
    is_ray = dialect in RAY_DIALECTS
    if is_ray != ("ray" in target.starts):
        other = "rayjob or ray-sub" if is_ray else "trainjob or jobset"
        how = "through Ray" if is_ray else "one launcher per node"
        raise HcpError(
            f"found a {dialect} launch with --target {target.name}",
            wanted=f"--target {other}, since {dialect} starts {how}",
        )
    if start not in (None, "srun", *target.starts):
        raise HcpError(f"found --start {start} with --target {target.name}", wanted=" or ".join(target.starts))
    for name, value in site.items():
        fate = fate_of(name, target)
        if fate.fate == "refused" and value not in (None, (), BY_NAME[name].default):
            raise HcpError(
                f"found {name} with --target {target.name}: {fate.text}", wanted="a job without it", do="leave it out"
            )
