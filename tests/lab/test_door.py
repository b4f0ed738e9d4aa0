"""lab/README.md lists every program of the laboratory, and the runner starts each."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parents[2] / "lab"
NAMES = list(runpy.run_path(str(LAB / "__main__.py"))["programs"]())
WITH_TORCH = {"dcp/batches", "gpu_day", "plan/rl_peak", "te/bytes", "te/gpu", "te/held", "te/hunt", "te_cpu"}


def test_the_page_lists_every_program_once() -> None:
    listed = re.findall(r"(?m)^\| `([\w/]+)[ `]", (LAB / "README.md").read_text(encoding="utf-8"))
    assert Counter(listed) - Counter({"python": 3}) == Counter(NAMES)


def test_the_list_names_every_file_that_does_something() -> None:
    files = [file for folder in (LAB, *LAB.iterdir()) if folder.is_dir() for file in folder.glob("*.py")]
    mains = {
        file.relative_to(LAB).with_suffix("").as_posix() for file in files if "\ndef main(" in file.read_text("utf-8")
    }
    assert mains - {"__main__"} == set(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.torch if name in WITH_TORCH else ()) for name in NAMES]
)
def test_a_program_says_how_it_is_called(name: str) -> None:
    done = subprocess.run([sys.executable, LAB, name, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: python lab {name} [-h]")


def test_a_name_that_is_no_program_is_refused_in_one_line() -> None:
    done = subprocess.run([sys.executable, LAB, "check.py"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("lab: found 'check.py'; wanted one of agree, ")
