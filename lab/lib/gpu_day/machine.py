"""The machine that is measured, and the versions of what runs on it."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

_PACKAGES = ("torch", "transformer-engine", "megatron-core", "megatron-hcp", "flash-attn", "nvidia-nccl-cu12")
_QUERY = "name,driver_version,memory.total,clocks.max.sm,power.limit,ecc.mode.current"


def has_gpu() -> bool:
    """Whether there is a GPU to measure."""
    return torch.cuda.is_available()


def machine() -> dict[str, Any]:
    """Names, versions and limits, without anything that tells whose machine it is."""
    found: dict[str, Any] = {"device": "cpu", "python": platform.python_version(), "packages": {}}
    for name in _PACKAGES:
        try:
            found["packages"][name] = version(name)
        except PackageNotFoundError:
            continue
    if has_gpu():
        properties = torch.cuda.get_device_properties(0)
        found.update(
            device=torch.cuda.get_device_name(0), memory_bytes=properties.total_memory, cuda=torch.version.cuda,
            capability=list(torch.cuda.get_device_capability(0)), processors=properties.multi_processor_count,
        )  # fmt: skip
        found["nvidia_smi"] = _asked()
    return found


def _asked() -> str:
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader", "--id=0"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()[:200]
    except (OSError, subprocess.TimeoutExpired):
        return ""
