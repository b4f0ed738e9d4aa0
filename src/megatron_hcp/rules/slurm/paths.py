"""Where a job's files are: visible to every node, inside the container, and present when Slurm opens them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.upstream import BRIDGE_SBATCH, DIST_CHECKPOINTING, VERL_RAY_ON_SLURM
from megatron_hcp.rules.view import View

_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/local", "/localscratch", "/scratch/local", "/raid", "/mnt/nvme")
"""Folders that are node-local by convention."""
_KNOWN_BEFORE = re.compile(r"%%|%[ux]")
"""The sbatch filename patterns that are known at submission: the user, the job's name, a literal %."""
_CACHES = tuple(
    f"env.{name}"
    for name in "HF_HOME HF_DATASETS_CACHE HF_HUB_CACHE TRANSFORMERS_CACHE NEMO_HOME NEMORUN_HOME UV_CACHE_DIR".split()
)
_PATHS = ("checkpoint_save", "checkpoint_load", "data_path", "data_cache_path")


def _paths(v: View, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(fact, absolute path) of the facts that are known."""
    for name in names:
        value = v.get(name)
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, str) and item.startswith("/"):
                yield name, posixpath.normpath(item)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _has_paths(v: View, *names: str) -> bool:
    return any(True for _ in _paths(v, names))


def _container_mounts(v: View) -> list[str]:
    """The container-side path of every mount. Unknown without the option: a site may mount folders by default."""
    name = "sbatch.container_mounts" if v.known("sbatch.container_mounts") else "srun.container_mounts"
    entries = [entry.split(":") for entry in str(v[name]).split(",") if entry]
    return [posixpath.normpath(entry[1] if len(entry) > 1 else entry[0]) for entry in entries]


@rule(
    "SLURM005",
    "error silent never",
    source=(DIST_CHECKPOINTING.says("save", "checkpoint_dir", ">=0.12"),),
    applies=lambda v: _has_paths(v, *_PATHS, *_CACHES),
    good=Example("mlm", "--save /shared/ckpt", "nodes=2"),
    bad=Example("mlm", "--save /tmp/ckpt", "nodes=2"),
)
def paths_are_shared_by_all_nodes(v: View) -> Problem | None:
    """Checkpoints, data and caches are on storage that every node sees.

    All ranks write a distributed checkpoint into one folder. In /tmp or on a local disk each node keeps a part that no
    other node sees: saving reports success, and loading fails. A cache in such a place is filled once per node, and
    packed data that is prepared several times may differ.
    """
    if v.nodes in (None, 1):
        return None
    for name, path in _paths(v, _PATHS[:2]):
        if any(_is_below(path, folder) for folder in _LOCAL):
            return Problem(
                message="every node writes its part of the checkpoint where the others can't see it: no node can load "
                "the whole, and the part is lost with its node",
                found=f"{name} {path} on {v.nodes} nodes",
                wanted="a folder on a file system that all nodes share",
                facts=(name,),
            )
    for name, path in _paths(v, (*_PATHS[2:], *_CACHES)):
        if any(_is_below(path, folder) for folder in _LOCAL):
            return Problem(
                message="every node downloads and prepares its own copy, and packed data may differ between nodes",
                found=f"{name.removeprefix('env.')} {path} on {v.nodes} nodes",
                wanted="a folder on a file system that all nodes share",
                facts=(name,),
                severity="warning",
            )
    return None


@rule(
    "SLURM011",
    "warning crash config",
    source=(VERL_RAY_ON_SLURM.says("<module>", "#SBATCH --output", ">=0.8"),),
    applies=lambda v: "/" in str(v.get("sbatch.output") or v.get("sbatch.error") or "").lstrip("./"),
    good=Example(
        "mlm",
        "#SBATCH --output=logs/%x-%j.out\nsrun python pretrain_gpt.py --micro-batch-size 1\n",
        "log_directory=present ntasks_per_node=1 gpus_per_node=1 nodes=1 world_size=1",
    ),
    bad=Example(
        "mlm",
        "#SBATCH --output=logs/%x-%j.out\nsrun python pretrain_gpt.py --micro-batch-size 1\n",
        "log_directory=missing ntasks_per_node=1 gpus_per_node=1 nodes=1 world_size=1",
    ),
    may_be_error=True,
)
def output_folder_exists(v: View) -> Problem | None:
    """The folder of --output exists when the job is submitted.

    Slurm opens the log file before it starts the script and doesn't create folders. If the folder is missing, the job
    ends at once or runs with its output discarded, depending on the version. A mkdir in the script comes too late, and
    a folder with a pattern such as %j in its name cannot exist beforehand; one with the user (%u) or the job's name
    (%x) can.
    """
    name = "sbatch.output" if "/" in str(v.get("sbatch.output") or "").lstrip("./") else "sbatch.error"
    output = str(v[name])
    folder = posixpath.dirname(output)
    if "%" in _KNOWN_BEFORE.sub("", folder):
        return Problem(
            message="Slurm doesn't create the log folder: the job fails at once, or runs with its output discarded",
            found=f"--output={output}: the folder {folder} has a name that is only known once the job runs",
            wanted="the % pattern in the file's name, in a folder that exists",
            facts=(name,),
            severity="error",
        )
    if v.get("log_directory") == "present":
        return None
    text = v.launch.reading.text or ""
    made = re.search(
        rf"^[ \t]*mkdir\b[^\n]*[\s/\"'=]{re.escape(posixpath.normpath(folder))}(?=[/\s\"';&]|$)", text, re.M
    )
    if made is None and v.log_directory != "missing":
        return None
    return Problem(
        message="the folder must exist when the job is submitted: Slurm opens the log before the script runs",
        found=f"--output={output}, " + (f"and the job itself creates {folder}" if made else f"no folder {folder}"),
        wanted=f"mkdir -p {folder} before sbatch",
        facts=(name,),
    )


@rule(
    "SLURM012",
    "error silent never",
    source=(BRIDGE_SBATCH.says("<module>", "--container-mounts", ">=0.3"),),
    applies=lambda v: bool(v.get("srun.container_image") or v.get("sbatch.container_image")) and _has_paths(v, *_PATHS),
    good=Example(
        "mlm",
        "srun --ntasks=1 --container-image=x.sqsh --container-mounts=/ckpt:/ckpt python "
        "pretrain_gpt.py --micro-batch-size 1 --save /ckpt/run\n",
        "ntasks_per_node=1 gpus_per_node=1 nodes=1 world_size=1",
    ),
    bad=Example(
        "mlm",
        "srun --ntasks=1 --container-image=x.sqsh --container-mounts=/data:/data python "
        "pretrain_gpt.py --micro-batch-size 1 --save /ckpt/run\n",
        "ntasks_per_node=1 gpus_per_node=1 nodes=1 world_size=1",
    ),
)
def container_mounts_the_paths(v: View) -> Problem | None:
    """A container sees the checkpoint and data paths of its job.

    A path that no mount covers exists only inside the container. Data is then not found, after the whole job has
    started; a checkpoint is written into the container's own layer and silently discarded with it. Paths below /home
    count as mounted unless --no-container-mount-home is given.
    """
    without_home = v.get("srun.no_container_mount_home") or v.get("sbatch.no_container_mount_home")
    paths = [(name, path) for name, path in _paths(v, _PATHS) if without_home or not path.startswith("/home/")]
    mounts = _container_mounts(v) if paths else []
    for name, path in paths:
        if any(_is_below(path, mount) for mount in mounts):
            continue
        return Problem(
            message="the path exists only inside the container: files to read aren't found, and files written there "
            "are lost with the container",
            found=f"{name} {path}, mounts {', '.join(mounts) or 'none'}",
            wanted=f"a mount that covers it: --container-mounts=…,{posixpath.dirname(path)}",
            facts=(name, "srun.container_mounts"),
        )
    return None
