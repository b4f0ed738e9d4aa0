"""What this machine or container has: versions, GPUs, NVLink domain, Slurm allocation. Imports nothing heavy."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from megatron_hcp.ground.numbers import whole_number

DISTRIBUTIONS = {
    "te": ("transformer-engine", "transformer_engine"),
    "mcore": ("megatron-core",),
    "bridge": ("megatron-bridge",),
    "verl": ("verl",),
    "torch": ("torch",),
    "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "nvrx": ("nvidia-resiliency-ext",),
    "flash_attn": ("flash-attn-4", "flash-attn-3", "flash-attn"),
    "nemo_rl": ("nemo-rl",),
    "ms_swift": ("ms-swift",),
}
_TIMEOUT_S = 20


def installed_versions() -> dict[str, Any]:
    """Versions of the packages that rules need, and whether einops is installed; what is absent is omitted."""
    facts: dict[str, Any] = {}
    for name, distributions in DISTRIBUTIONS.items():
        version = next(filter(None, map(_version, distributions)), None)
        if version is None and name == "mcore":
            version = _source_version()
        if version is not None:
            facts[name] = version
    branch = _source_branch() if "mcore" in facts else None
    if branch is not None:
        facts["mcore_branch"] = branch
    facts["einops"] = importlib.util.find_spec("einops") is not None
    return facts


def machine_facts(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Everything that `hcp facts` reports, by fact name; what can't be determined is omitted.

    The NVLink domain is reported only if every pair of the node's GPUs is linked by NVLink and the node isn't a tray of
    a larger domain (four Blackwell GPUs may be one of 18 trays).
    """
    facts = installed_versions()
    facts |= gpu_facts(
        _run("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"), _run("nvidia-smi", "topo", "-m")
    )
    for name, variable in (("nodes", "SLURM_JOB_NUM_NODES"), ("world_size", "SLURM_NTASKS")):
        value = environment.get(variable, "")
        number = whole_number(value)
        if number is not None and (name != "world_size" or "SLURM_STEP_ID" in environment):
            facts[name] = number
    return facts


def gpu_facts(compute_caps: str, topology: str) -> dict[str, Any]:
    """Facts from `nvidia-smi --query-gpu=compute_cap` and `nvidia-smi topo -m`; empty texts give none.

    >>> gpu_facts("9.0\\n9.0", "\\tGPU0\\tGPU1\\nGPU0\\t X \\tNV18\\nGPU1\\tNV18\\t X ")
    {'gpus_per_node': 2, 'arch': 'sm90', 'nvlink_domain': 2}
    """
    caps = [line.strip() for line in compute_caps.splitlines() if re.fullmatch(r"\s*\d+\.\d+\s*", line)]
    if not caps:
        return {}
    facts: dict[str, Any] = {"gpus_per_node": len(caps)}
    if len(set(caps)) == 1:
        facts["arch"] = "sm" + caps[0].replace(".", "")
    rows = [line.split("\t")[1 : len(caps) + 1] for line in topology.splitlines() if re.match(r"GPU\d+\t", line)]
    links = [cell.strip() for row in rows for cell in row if cell.strip() != "X"]
    tray = len(caps) == 4 and caps[0].startswith("10.")
    if len(rows) == len(caps) > 1 and all(re.fullmatch(r"NV\d+", link) for link in links) and not tray:
        facts["nvlink_domain"] = len(caps)
    return facts


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _core_file(*parts: str) -> Path | None:
    """A file of the megatron.core that Python would import, found without importing it."""
    try:
        spec = importlib.util.find_spec("megatron")
    except (ImportError, ValueError):
        return None
    folders = (spec.submodule_search_locations or ()) if spec else ()
    places = (Path(folder).joinpath("core", *parts) for folder in folders)
    return next((place for place in places if place.is_file()), None)


def _source_branch() -> str | None:
    """Whether megatron-core is the dev branch: only that has the dynamic CP scheduler."""
    file = _core_file("datasets", "data_schedule.py")
    if file is None:
        return "main" if _core_file("package_info.py") else None
    return "dev" if "class DefaultDynamicCPScheduler" in file.read_text(encoding="utf-8", errors="replace") else "main"


def _source_version() -> str | None:
    """megatron-core from a checkout on the path, as in containers: its package_info.py, read but not imported."""
    file = _core_file("package_info.py")
    if file is not None:
        text = file.read_text(encoding="utf-8", errors="replace")
        parts = [re.search(rf"^{name}\s*=\s*(\d+)", text, re.M) for name in ("MAJOR", "MINOR", "PATCH")]
        if all(parts):
            return ".".join(part[1] for part in parts if part)
    return None


def num_gpus() -> int:
    """NVIDIA GPUs that this process may use, as nvidia-smi lists them; 0 without it, or if it doesn't respond."""
    if shutil.which("nvidia-smi") is None:
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([item for item in visible.split(",") if item.strip() not in ("", "-1")])
    return listed_gpus()


@cache
def listed_gpus() -> int:
    """The GPUs of `nvidia-smi -L`. Called once: if it hangs, every call takes the whole time limit."""
    return sum(line.startswith("GPU ") for line in _run("nvidia-smi", "-L").splitlines())


def _run(program: str, *arguments: str) -> str:
    """What the program prints; empty if it is missing, fails, or doesn't end within the time limit."""
    if shutil.which(program) is None:
        return ""
    from megatron_hcp.ground.child import run_child

    try:
        ended = run_child([program, *arguments], timeout_s=_TIMEOUT_S)
    except OSError:
        return ""
    return ended.stdout if ended.status == 0 else ""
