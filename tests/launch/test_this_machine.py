"""hcp facts tells whether the installed megatron-core is the dev branch's, by what its sources hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from hcp.launch import this_machine as machine


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
