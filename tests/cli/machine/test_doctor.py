"""`hcp doctor`: what works, what is absent, and what is there and fails."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

SRC = str(Path(__file__).resolve().parents[3] / "src")


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def package(folder: Path, name: str, version: str, module: str = "", text: str = "") -> None:
    """An installed distribution, and the module that is imported for it."""
    (folder / f"{name.replace('-', '_')}-{version}.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (folder / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA").write_text(metadata)
    if module:
        (folder / module).mkdir(parents=True)
        (folder / module / "__init__.py").write_text(text)


@pytest.fixture
def examined(hcp, tmp_path: Path):
    """Runs `hcp doctor` where only these programs and, before what is installed here, these packages are found."""
    for name in ("bin", "packages", "here"):
        (tmp_path / name).mkdir()
    installed = {
        "torch": "torch",
        "megatron-core": "megatron/core",
        "mcp": "mcp",
        "pyarrow": "pyarrow",
        "numpy": "numpy",
    }
    for name, module in installed.items():  # the real ones take seconds to import
        package(tmp_path / "packages", name, "2.0.0", module)

    def run(*words: str, **environment: str):
        path = os.pathsep.join((str(tmp_path / "packages"), SRC))
        environment = {"PATH": str(tmp_path / "bin"), "PYTHONPATH": path, **environment}
        return hcp("doctor", *words, cwd=tmp_path / "here", env=environment)

    return run


def found(done) -> dict[str, tuple[str, str]]:
    data = json.loads(done.stdout)
    assert data["schema"] == "hcp.doctor/1" and data["ok"] == (done.returncode == 0), done.stderr
    return {line["name"]: (line["state"], line["text"]) for line in data["found"]}


def test_what_is_absent_is_no_fault(examined) -> None:
    done = examined()
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line[:6].strip() + " " + line[8:].partition("  ")[0] for line in done.stdout.splitlines()}
    assert lines >= {"ok hcp", "absent GPUs", "absent Slurm", "absent containers", "absent skills in .agents/skills"}


def test_every_extra_of_a_command_is_a_line(examined, root: Path) -> None:
    """Those of training jobs are packages of their own: torch, megatron-core, Transformer Engine."""
    text = (root / "pyproject.toml").read_text("utf-8").partition("[project.optional-dependencies]")[2]
    extras = {line.partition(" =")[0] for line in text.partition("\n\n")[0].splitlines() if " = [" in line}
    listed = {name.strip("[]") for name in found(examined("--format", "json")) if name.startswith("[")}
    assert listed == extras - {"megatron", "dcp", "te", "test"}


def test_what_is_there_and_fails_is_broken(examined, tmp_path: Path) -> None:
    program(tmp_path / "bin", "nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")
    program(tmp_path / "bin", "scontrol", "echo slurm_load_ctl_conf error >&2; exit 1")
    program(tmp_path / "bin", "docker", "echo no such file >&2; exit 127")
    why = "raise ImportError('libcudnn.so.9: cannot open shared object file')"
    package(tmp_path / "packages", "transformer-engine", "2.14.0", "transformer_engine", why)
    done = examined("--format", "json")
    lines = found(done)
    assert done.returncode == 1
    assert lines["GPUs"] == ("broken", "nvidia-smi -L: NVIDIA-SMI has failed")
    assert lines["Slurm"] == ("broken", "scontrol ping: slurm_load_ctl_conf error")
    assert lines["docker"] == ("broken", "docker --version: no such file")
    state, text = lines["te"]
    assert state == "broken" and text.startswith("2.14.0; importing transformer_engine.pytorch fails: ")
    assert "libcudnn.so.9" in text


@pytest.mark.parametrize("environment", [{}, {"PYTHONSAFEPATH": "1"}], ids=str)
def test_packages_are_imported_from_the_whole_path_but_for_the_current_folder(
    examined, tmp_path: Path, environment: dict[str, str]
) -> None:
    package(tmp_path / "packages", "transformer-engine", "2.14.0", "transformer_engine/pytorch")
    package(tmp_path / "here", "transformer-engine", "2.14.0", "transformer_engine", "raise ImportError('here')")
    assert found(examined("--format", "json", **environment))["te"][0] == "ok"


def test_what_works_is_told_with_its_version(examined, hcp, tmp_path: Path) -> None:
    program(tmp_path / "bin", "scontrol", '[ "$1" = ping ] || echo slurm 24.05.1')
    program(tmp_path / "bin", "enroot", '[ "$1" = version ] && echo 3.5.0')
    package(tmp_path / "packages", "verl", "99.0")
    hcp("skills", "install", "training-resiliency", "slurm-multi-node-launch", cwd=tmp_path / "here")
    (tmp_path / "here/.agents/skills/training-resiliency/SKILL.md").write_text("mine")
    hcp("skills", "install", "training-resiliency", "--agent", "claude", cwd=tmp_path / "here")
    lines = found(examined("--format", "json"))
    assert lines["Slurm"] == ("ok", "slurm 24.05.1") and lines["enroot"] == ("ok", "3.5.0")
    assert lines["verl"][0] == "ok" and lines["verl"][1].startswith("verl 99.0 was not read (last read: ")
    assert lines["skills in .agents/skills"] == (
        "old",
        "2, 1 not as in this version: training-resiliency; hcp skills update",
    )
    assert lines["skills in .claude/skills"] == ("ok", "1, all of this version")
