"""`python lab submitted`: a program of the laboratory, once for each value, as tasks through submitit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("submitit")
LAB = str(Path(__file__).resolve().parents[2] / "lab")
VALUES = ("TP001", "NOPE/9", "NOPE_9", "TP002")


def lab(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, LAB, "submitted", *words],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", pytest.param("slurm", marks=pytest.mark.slurm)])
def test_each_value_is_run_and_what_it_prints_is_kept(
    tmp_path: Path, request: pytest.FixtureRequest, executor: str
) -> None:
    slurm = executor == "slurm"
    env = request.getfixturevalue("slurm").env if slurm else {}
    more = ["--executor", "slurm", "--submit-with", "partition=debug", "--submit-with", "time=5"] if slurm else []
    done = lab(tmp_path, "mutants", "--list", "--rule", "{}", "--each", *VALUES, *more, env=env)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    verdicts = zip(("passed", "failed", "failed", "passed"), VALUES, strict=True)
    assert [tuple(line.split(":")[0].split()[:2]) for line in lines] == [*verdicts]
    logs = [(tmp_path / "lab-tasks" / f"{number}.log").read_text() for number in range(1, len(VALUES) + 1)]
    assert "rules/tp.py" in logs[0]
    for log, value, line in zip(logs, VALUES, lines, strict=True):
        assert value in log.splitlines()[-1] and line.endswith(log.splitlines()[-1])


@pytest.mark.parametrize("words", [["mutants"], ["--each", "x"], ["mutants", "--each"]])
def test_a_command_line_without_a_program_or_values_says_what_is_wanted(tmp_path: Path, words: list[str]) -> None:
    done = lab(tmp_path, *words)
    assert done.returncode == 2 and "error: " in done.stderr.splitlines()[-1]
    assert not (tmp_path / "lab-tasks").exists()


@pytest.mark.parametrize("parameter", ["name", "time=0"])
def test_a_parameter_that_is_none_is_refused_in_one_line(tmp_path: Path, parameter: str) -> None:
    done = lab(tmp_path, "mutants", "--list", "--rule", "{}", "--each", "TP001", "--submit-with", parameter)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1 and line.startswith("lab: ") and parameter in line and not done.stdout
