"""`lab/gpu_day.sh` on a CPU: each part is done, or says why not, and the page says that no GPU was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.torch]
ROOT = Path(__file__).resolve().parents[2]
TINY_PARTS = {"gemm", "grouped_gemm", "attention", "memory_traffic", "kernel_launch", "gpt_peak", "calibrate"}


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    folder = tmp_path_factory.mktemp("day")
    env = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        ["bash", str(ROOT / "lab/gpu_day.sh"), str(folder), "--small"], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "day.json").read_text("utf-8")), (folder / "day.md").read_text("utf-8")


def test_every_part_that_a_cpu_can_run_is_done(day: tuple[dict[str, Any], str]) -> None:
    parts = day[0]["parts"]
    assert {name for name, part in parts.items() if part["status"] == "done"} == TINY_PARTS
    assert all(part["rows"] for name, part in parts.items() if name in TINY_PARTS)


def test_what_needs_a_gpu_is_skipped_with_its_reason_and_never_done(day: tuple[dict[str, Any], str]) -> None:
    skipped = {name: part for name, part in day[0]["parts"].items() if part["status"] != "done"}
    assert set(skipped) == {"te_layers", "verify"}
    assert all(part["status"] == "skipped" and "GPU" in part["reason"] for part in skipped.values())


def test_times_and_sizes_give_the_rates_that_stand_beside_them(day: tuple[dict[str, Any], str]) -> None:
    for row in day[0]["parts"]["gemm"]["rows"]:
        assert row["flops"] == pytest.approx(2 * row["m"] * row["n"] * row["k"] / row["s"])
    for row in day[0]["parts"]["memory_traffic"]["rows"]:
        assert row["bytes_per_s"] == pytest.approx(2 * row["bytes"] / row["s"])


def test_the_page_says_that_no_gpu_was_measured_and_names_the_versions(day: tuple[dict[str, Any], str]) -> None:
    found, page = day
    assert found["machine"]["device"] == "cpu" and "No GPU has been measured" in page
    assert f"torch {found['machine']['packages']['torch']}" in page
    assert all(f"## {name.replace('_', ' ')}: " in page for name in found["parts"])


def test_a_part_that_fails_is_told_and_the_page_is_still_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(root / "lab" / "lib"), *sys.path])
    page_of = import_module("gpu_day.page").page_of
    machine = {"device": "NVIDIA H100", "python": "3.11", "packages": {"torch": "2.9"}}
    part = {"status": "failed", "reason": "exit 1: no such thing", "seconds": 1.0}
    page = page_of({"machine": machine, "seconds": 1.0, "parts": {"gemm": part}})
    assert "failed" in page and "no such thing" in page and "No GPU has been measured" not in page


def test_shares_of_the_time_are_those_of_forty_minutes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(root / "lab" / "lib"), *sys.path])
    assert sum(import_module("gpu_day.parts").PARTS.values()) == pytest.approx(1.0)
