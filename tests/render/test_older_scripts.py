"""A script that 0.2.0 rendered before `hcp job run`: it trains as it did, or stops with a line that says why.

older_srun.sbatch was rendered by this project's commit 9d26d2f6, with PYTHON and TRAINER for its Python and program.
"""

import json
import sys
from pathlib import Path

import pytest

from support.hcp_process import run_hcp

SCRIPT = Path(__file__).with_name("older_srun.sbatch").read_text()
TRAINS = "print(' iteration        3/       3 |', flush=True)\n"


@pytest.fixture
def attempt(root, tmp_path, monkeypatch):
    """`attempt(text)`: how that script ended on a stand-in for Slurm."""
    monkeypatch.syspath_prepend(root / "checks")
    from slurm_standin import StandinSlurm

    def run(text):
        slurm = StandinSlurm(tmp_path)
        (tmp_path / "trainer.py").write_text(TRAINS)
        script = tmp_path / "job.sbatch"
        script.write_text(
            text.replace("PYTHON\n", f"{sys.executable}\n").replace("TRAINER", str(tmp_path / "trainer.py"))
        )
        return slurm.run(script)

    return run


@pytest.mark.slow
def test_a_script_that_calls_this_package_trains(attempt):
    ended = attempt(SCRIPT)
    assert (ended.code, ended.verdict["status"], ended.verdict["phase"]) == (0, "completed", 3), ended.log


@pytest.mark.slow
def test_one_that_calls_the_package_by_its_first_name_stops_before_it_trains(attempt, tmp_path):
    ended = attempt(SCRIPT.replace("-m megatron_hcp", "-m hcp"))
    assert (ended.code, ended.verdict["status"], ended.verdict["phase"], ended.verdict["next"]) == (
        1,
        "stopped",
        0,
        "none",
    )
    assert ended.verdict["reason"] == "hcp could not run: exit code 1: ImportError: No module named hcp"
    assert "iteration" not in ended.log
    found = json.loads(run_hcp("triage", "--format", "json", str(tmp_path), cwd=tmp_path).stdout)
    assert found["first_failure"]["signature"] == "hcp-renamed", found["first_failure"]
    assert found["first_failure"]["next"][0] == "render it again with `hcp render`"


def test_hcp_check_still_reads_them(tmp_path):
    for text in (SCRIPT, SCRIPT.replace("-m megatron_hcp", "-m hcp")):
        (tmp_path / "job.sbatch").write_text(text.replace("TRAINER", "pretrain_gpt.py"))
        done = run_hcp("check", "job.sbatch", "--format", "json", cwd=tmp_path)
        assert done.returncode == 0 and json.loads(done.stdout)["ok"], done.stdout
