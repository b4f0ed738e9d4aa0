"""What `hcp plan --phases` counts, beside what one H100 needed for the same phase (`lab plan/rl_peak`)."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_a_plan_is_within_five_percent_of_what_a_gpu_needed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(root / "lab" / "plan"), str(root / "lab" / "lib"), *sys.path])
    planned = import_module("rl_peak").planned
    cells = json.loads((root / "lab/results/rl_peak_h100.json").read_text("utf-8"))["cells"]
    ratios = {}
    for number, cell in enumerate(cells):
        if "peak_gib" not in cell:
            assert cell["chunk"] and cell["entropy"] and "modified by an inplace operation" in cell["failed"]
            continue
        measured = cell["peak_gib"] - cell["before_gib"]  # what earlier cells had left is none of this one's
        ratios[number] = planned(argparse.Namespace(**cell), tmp_path)["planned_gib"] / measured
    assert len(ratios) == 14 and all(1.0 <= ratio <= 1.05 for ratio in ratios.values()), ratios
