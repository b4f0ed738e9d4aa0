"""What the card of dynamic CP claims of released versions, read in their wheels."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.upstream


def _defines(file: Path) -> set[str]:
    """The classes and functions of a module, at any depth; empty where there is no such file."""
    if not file.is_file():
        return set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _parameters(file: Path, function: str) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    node = next(item for item in ast.walk(tree) if isinstance(item, ast.FunctionDef) and item.name == function)
    return {argument.arg for argument in node.args.args}


def _wheels(upstream: Path, name: str) -> dict[str, Path]:
    wheels = {path.name.removeprefix(f"{name}-"): path for path in sorted(upstream.glob(f"{name}-*"))}
    assert len(wheels) >= 3
    return wheels


def test_no_release_of_megatron_core_has_the_scheduler_that_verl_imports(upstream: Path) -> None:
    imported = ast.parse((upstream / "verl-0.9.1/verl/utils/dynamic_cp_scheduler.py").read_text(encoding="utf-8"))
    names = {
        alias.name: node.module
        for node in ast.walk(imported)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module or "").startswith("megatron")
    }
    assert names == {"DefaultDynamicCPScheduler": "megatron.core.datasets.data_schedule"}
    for wheel in _wheels(upstream, "megatron-core").values():
        assert "DefaultDynamicCPScheduler" not in _defines(wheel / "megatron/core/datasets/data_schedule.py")


def test_hybrid_cp_came_with_megatron_core_0_16(upstream: Path) -> None:
    for version, wheel in _wheels(upstream, "megatron-core").items():
        parameters = _parameters(wheel / "megatron/core/parallel_state.py", "initialize_model_parallel")
        is_new = tuple(map(int, version.split(".")[:2])) >= (0, 16)
        assert ("hybrid_context_parallel" in parameters) == is_new, version
        assert "dynamic_context_parallel" not in parameters, version


def test_each_verl_has_what_the_version_table_says(upstream: Path) -> None:
    for version, wheel in _wheels(upstream, "verl").items():
        has_split = "dynamic_cp_split_batch" in _defines(wheel / "verl/utils/megatron_utils.py")
        has_adapter = "DynamicCPScheduler" in _defines(wheel / "verl/utils/dynamic_cp_scheduler.py")
        minor = int(version.split(".")[1])
        assert (has_split, has_adapter) == (minor == 8, minor >= 9), version
        config = (wheel / "verl/workers/config/engine.py").read_text(encoding="utf-8")
        assert ("dynamic_context_parallel" in config) == (minor >= 8)
