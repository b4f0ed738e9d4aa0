"""lab/first_fixes.py: its faults are faults, and what is left of them is told apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parents[2] / "lab"


@pytest.mark.slow
def test_a_few_faults_end_clean_or_explained() -> None:
    done = subprocess.run(
        [sys.executable, LAB, "first_fixes", "--limit", "5", "--reasons"], capture_output=True, text=True
    )
    *explained, counts = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert counts.endswith(" explained, 0 neither") and f"clean, {len(explained)} explained" in counts
    assert any(
        line.startswith("explained: TOPO007 bad: TOPO007: no single setting of this launch fixes it")
        for line in explained
    )
