"""hcp facts tells whether the installed megatron-core is the dev branch's, by what its sources hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from megatron_hcp.launch import this_machine as machine
from support.processes import have_ended


@pytest.mark.parametrize(
    "schedule, branch",
    [
        ("class DefaultDynamicCPScheduler(DpBalancedScheduler):\n    pass\n", "dev"),
        ("class HybridCPDataLoaderWrapper:\n    pass\n", "main"),
        (None, "main"),
    ],
)
def test_the_branch_is_read_from_the_package_on_the_path(
    schedule: str | None, branch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = tmp_path / "megatron" / "core"
    (core / "datasets").mkdir(parents=True)
    (core / "package_info.py").write_text("MAJOR = 0\nMINOR = 19\nPATCH = 0\n")
    if schedule is not None:
        (core / "datasets" / "data_schedule.py").write_text(schedule)
    _put_first(tmp_path, monkeypatch)
    assert machine._source_branch() == branch
    assert machine._source_version() == "0.19.0"


def test_without_megatron_core_there_is_no_branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "megatron").mkdir()
    _put_first(tmp_path, monkeypatch)
    assert machine._source_branch() is None


def _put_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this folder's megatron is found: a namespace package elsewhere would be searched as well."""
    import importlib.util
    from importlib.machinery import PathFinder

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: PathFinder.find_spec(name, [str(folder)]))


@pytest.mark.slow
def test_a_program_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sleeping child holds the pipe of the output: to wait for the end of that would be to wait for the child."""
    stub = tmp_path / "nvidia-smi"
    stub.write_text(f"#!/bin/sh\nsleep 1000000 &\necho $! $$ > {tmp_path}/pids\necho 'GPU 0: x'\nwait\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine, "_TIMEOUT_S", 1)
    assert machine.num_gpus() == 0
    assert have_ended(map(int, (tmp_path / "pids").read_text().split()))
    assert machine.machine_facts({}).get("gpus_per_node") is None


def test_gpus_are_those_that_this_process_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "nvidia-smi"
    stub.write_text("#!/bin/sh\n[ \"$1\" = -L ] && printf 'GPU 0: NVIDIA H100\\nGPU 1: NVIDIA H100\\n'\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine.listed_gpus.cache_clear()
    assert machine.num_gpus() == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,-1, 3")
    assert machine.num_gpus() == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.num_gpus() == 0
    stub.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.num_gpus() == 0
