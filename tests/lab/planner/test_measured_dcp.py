"""`lab dcp/measured`: the workload that dev's benchmark draws, and what a plan says of it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def measured(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(root / "lab" / "dcp"), str(root / "lab" / "lib"), *sys.path])
    return import_module("measured")


def test_a_step_has_eight_sequences_for_each_group_with_lengths_between_the_limits(measured: ModuleType) -> None:
    steps = list(measured._drawn(16, 0))
    assert len(steps) == 20 and {len(lengths) for lengths in steps} == {16}
    flat = [length for lengths in steps for length in lengths]
    assert min(flat) == 128 and max(flat) <= 8192
    assert 600 < sum(flat) / len(flat) < 1100  # a mean of 1024, less what the limits cut


def test_dynamic_cp_gains_on_many_gpus_and_a_measured_step_takes_far_longer_than_its_work(measured: ModuleType) -> None:
    (found,) = measured.answers(64, 1)
    assert 1.2 < found.speed_up < 1.6
    assert measured.MEASURED_MS[64][0] > 5 * found.static_ms
