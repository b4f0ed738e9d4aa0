"""`hcp doctor`: what this machine and environment can do, one line each."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import click

from megatron_hcp import __version__
from megatron_hcp.cli.options import format_option
from megatron_hcp.cli.reports.json import dump
from megatron_hcp.cli.screen import say
from megatron_hcp.ground.child import Child, run_child
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.signals import ends_cleanly
from megatron_hcp.judge.age import ages_of
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.this_machine import installed_versions
from megatron_hcp.skills.card import skill_dirs
from megatron_hcp.skills.install import UP_TO_DATE, plan_copies
from megatron_hcp.skills.installed import AGENT_FOLDERS, few
from megatron_hcp.skills.uninstall import installed_in

_TIMEOUT_S, _IMPORT_TIMEOUT_S = 20.0, 120.0
_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
_EXTRAS = {
    "data": ("pyarrow", "numpy"),
    "mcp": ("mcp",),
    "lsp": ("pygls",),
    "jobs": ("submitit",),
    "logs": (_ZSTD,),
}
"""Extra -> modules of its packages."""
_MODULES = {
    "torch": "torch",
    "te": "transformer_engine.pytorch",
    "mcore": "megatron.core",
    "bridge": "megatron.bridge",
    "flash_attn": "flash_attn",
}
"""What is imported to see whether an installed package works; of the others only the version is reported."""
_CONTAINERS = ("apptainer", "singularity", "enroot", "docker", "podman")


class Health(NamedTuple):
    """One thing: whether it works, is absent, is there and fails (`broken`), or is of another version (`old`)."""

    name: str
    state: Literal["ok", "absent", "old", "broken"]
    text: str


@click.command()
@format_option("text", "json")
def doctor(fmt: str) -> int:
    """Print what this machine and environment can do: hcp and its extras, packages, GPUs, Slurm, containers, skills.

    Installed packages are imported, each in a process of its own, and nvidia-smi, scontrol and container programs are
    asked for their state. Exits with 1 if something is there and does not work; what is absent is no fault.
    """
    with ends_cleanly():
        lines = list(_healths())
    ok = not any(line.state == "broken" for line in lines)
    if fmt == "json":
        click.echo(dump({"schema": "hcp.doctor/1", "ok": ok, "found": [line._asdict() for line in lines]}))
    else:
        width = max(len(line.name) for line in lines)
        say(f"{line.state:<6}  {line.name:<{width}}  {line.text}" for line in lines)
    return 0 if ok else 1


def _healths() -> Iterator[Health]:
    yield Health("hcp", "ok", f"{__version__}, Python {platform.python_version()}")
    yield from (_extra(name, modules) for name, modules in _EXTRAS.items())
    gpus = _gpus()
    yield gpus
    yield from _packages(has_gpus=gpus.state == "ok")
    yield _slurm()
    yield from _containers()
    yield from (_skills(Path(folder)) for folder in dict.fromkeys(AGENT_FOLDERS.values()))


def _extra(name: str, modules: Iterable[str]) -> Health:
    """An extra of hcp itself."""
    for module in modules:
        fails = _import_fails(module)
        if fails is not None:
            is_absent = fails.endswith((f"No module named '{module}'", f"No module named '{module.partition('.')[0]}'"))
            if is_absent:
                return Health(f"[{name}]", "absent", f"pip install 'megatron-hcp[{name}]'")
            return Health(f"[{name}]", "broken", f"importing {module} fails: {fails}")
    return Health(f"[{name}]", "ok", "installed")


def _packages(*, has_gpus: bool) -> Iterator[Health]:
    """Packages that rules ask for: do they work, and were their releases read?"""
    versions = {name: version for name, version in installed_versions().items() if isinstance(version, str)}
    for name, version in versions.items():
        if name == "mcore_branch":
            continue
        fails = _import_fails(_MODULES[name]) if name in _MODULES else None
        if fails is not None:
            yield Health(name, "broken", f"{version}; importing {_MODULES[name]} fails: {fails}")
        elif name == "torch" and has_gpus:
            yield _torch(version)
        else:
            yield Health(name, "ok", _with_age(name, version))


def _torch(version: str) -> Health:
    code = "import torch; print(torch.version.cuda or 'none', torch.cuda.device_count())"
    cuda, _, count = _said(_python(code)).partition(" ")
    if cuda == "none":
        return Health("torch", "broken", f"{version}, which is built without CUDA, on a machine with GPUs")
    if count == "0" and "CUDA_VISIBLE_DEVICES" not in os.environ:
        return Health("torch", "broken", f"{version} for CUDA {cuda} sees no GPU")
    return Health("torch", "ok", f"{version} for CUDA {cuda}, sees {count} GPUs")


def _with_age(name: str, version: str) -> str:
    """The version, and that nobody has read this release if that is so."""
    try:
        launch = load_launch("", LoadOptions(words=("--context-parallel-size", "1"), assumes=(f"{name}={version}",)))
    except HcpError:
        return version
    return next((str(age) for age in ages_of(launch)), version)


def _gpus() -> Health:
    if shutil.which("nvidia-smi") is None:
        return Health("GPUs", "absent", "no nvidia-smi on the PATH")
    done = _run("nvidia-smi", "-L")
    names = [line for line in done.stdout.splitlines() if line.startswith("GPU ")]
    if done.status != 0 or not names:
        return Health("GPUs", "broken", f"nvidia-smi -L: {_why(done)}")
    return Health("GPUs", "ok", f"{len(names)}: {names[0].partition(': ')[2].partition(' (')[0]}")


def _slurm() -> Health:
    if shutil.which("scontrol") is None:
        return Health("Slurm", "absent", "no scontrol on the PATH")
    done = _run("scontrol", "ping")
    if done.status != 0:
        return Health("Slurm", "broken", f"scontrol ping: {_why(done)}")
    job = os.environ.get("SLURM_JOB_ID")
    return Health("Slurm", "ok", _said(_run("scontrol", "--version")) + (f", in job {job}" if job else ""))


def _containers() -> Iterator[Health]:
    there = [name for name in _CONTAINERS if shutil.which(name) is not None]
    if not there:
        yield Health("containers", "absent", f"none of {', '.join(_CONTAINERS)} on the PATH")
    for name in there:
        done = _run(name, "version" if name == "enroot" else "--version")
        if done.status == 0:
            yield Health(name, "ok", _said(done))
        else:
            yield Health(name, "broken", f"{name} --version: {_why(done)}")


def _skills(place: Path) -> Health:
    """The pack's skills in a folder where agents look, below the current folder."""
    name = f"skills in {place}"
    try:
        there = {one.name for one in installed_in(place, (), given=False)}
        ours = [folder for folder in skill_dirs() if folder.name in there]
        old = [copy.name for copy in plan_copies(ours, place, given=False) if copy.how != UP_TO_DATE]
    except HcpError as error:
        return Health(name, "broken", str(error))
    if not ours:
        return Health(name, "absent", "hcp skills install")
    if old:
        return Health(name, "old", f"{len(ours)}, {len(old)} not as in this version: {few(old)}; hcp skills update")
    return Health(name, "ok", f"{len(ours)}, all of this version")


def _import_fails(module: str) -> str | None:
    """Why a module cannot be imported, in the last line that Python says; None if it can."""
    done = _python(f"import {module}")
    return None if done.status == 0 else _why(done)


def _python(code: str) -> Child:
    """Runs code in this Python, without the current folder, which -c puts on its path."""
    code = f"import sys; sys.path = [*filter(None, sys.path)]; {code}"
    return _run(sys.executable, "-c", code, timeout_s=_IMPORT_TIMEOUT_S)


def _run(*words: str, timeout_s: float = _TIMEOUT_S) -> Child:
    try:
        return run_child(words, timeout_s=timeout_s)
    except OSError as error:
        return Child(None, "", error.strerror or "it cannot be started")


def _said(done: Child) -> str:
    """The first line that a program printed."""
    return next((line.strip()[:200] for line in done.stdout.splitlines() if line.strip()), "")


def _why(done: Child) -> str:
    """The last line that a program printed as it failed, or that it did not end."""
    if done.why == "time":
        return "it did not end within the time limit"
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"exit code {done.status}"
