"""The plan of verl's phases beside the peaks that one H100 measured: lab/results/rl_peak_h100.json."""

from __future__ import annotations

import importlib
import json
from argparse import Namespace
from pathlib import Path

import pytest

from support.tree import ROOT

RECORD = json.loads((ROOT / "lab/results/rl_peak_h100.json").read_text("utf-8"))
CELLS = [cell for cell in RECORD["cells"] if "peak_gib" in cell]
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell['phase']} {cell['count']} x {cell['tokens']}")
def test_the_plan_is_within_five_percent_of_a_measured_peak(
    cell: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "lab/plan"))
    planned = importlib.import_module("rl_peak")._planned(Namespace(**cell), tmp_path)["planned_gib"]
    measured = cell["peak_gib"] - cell["before_gib"]
    if cell["fused"] and cell["phase"] == "log-probability":
        assert measured < planned < 1.4 * measured  # a layer's forward pass is counted at more than verl's kernels need
    else:
        assert planned == pytest.approx(measured, rel=0.05)
