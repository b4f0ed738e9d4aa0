"""What the card of dynamic CP claims of released versions, read in their wheels."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from megatron_hcp.dcp.groups import usable_sizes
from megatron_hcp.dcp.published.dev import packing_aware
from megatron_hcp.ground.errors import HcpError

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


UNEVEN, POWERS = (6, 10, 12, 20, 24), (4, 8, 16, 32)


def _fails(schedule: Callable[[list[int]], Iterable[int]], world_size: int, seed: int) -> bool:
    """Whether a scheduler breaks on sequences that all fit, or wants a group that megatron-core does not make.

    `schedule` gives the sizes of the groups that it makes.
    """
    chance = random.Random(f"{world_size}/{seed}")
    longest = 8192 << (world_size.bit_length() - 1)
    lengths = [
        min(longest, int(chance.uniform(100, 1000) + chance.lognormvariate(8.3, 1)))
        for _ in range(chance.choice((64, 256)))
    ]
    try:
        return not set(schedule(lengths)) <= set(usable_sizes(world_size, "main"))
    except (AssertionError, IndexError, HcpError):
        return True


def test_devs_scheduler_fails_where_the_number_of_ranks_is_no_power_of_two() -> None:
    """`packing_aware` is dev's to the sample (lab/dcp/upstream.py); dev itself: lab/results/dcp_runtime.txt."""

    def sizes_on(world_size: int) -> Callable[[list[int]], Iterable[int]]:
        return lambda lengths: [size for batch in packing_aware(lengths, world_size, 8192) for size, *_ in batch]

    assert all(any(_fails(sizes_on(world_size), world_size, seed) for seed in range(16)) for world_size in UNEVEN)
    assert not any(_fails(sizes_on(world_size), world_size, seed) for seed in range(3) for world_size in POWERS)


@pytest.mark.torch
def test_the_installed_scheduler_fails_where_the_number_of_ranks_is_no_power_of_two() -> None:
    pytest.importorskip("torch")
    from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler

    def sizes_on(world_size: int) -> Callable[[list[int]], Iterable[int]]:
        scheduler = BalancedCPScheduler(8192, SimpleNamespace(size=lambda: world_size))

        def sizes(lengths: list[int]) -> Iterable[int]:
            _, batches = scheduler.get_groups_and_subsamples(list(enumerate(lengths)), None)
            return {sum(sample in own for own in batch) for batch in batches for rank in batch for sample in rank}

        return sizes

    assert all(any(_fails(sizes_on(world_size), world_size, seed) for seed in range(16)) for world_size in UNEVEN)
    assert not any(_fails(sizes_on(world_size), world_size, seed) for seed in range(3) for world_size in POWERS)
