"""The end of a rendered script, where no task could leave a verdict: bash runs it, with scontrol's answer given."""

import json
import subprocess
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parent / "golden" / "srun.sbatch"
_BEFORE = """set -u; run=$1 attempt=0 code=137 asked=terminated SLURM_JOB_ID=7
scontrol() { echo "JobId=7 JobState=COMPLETING Restarts=1 StartTime=2026-01-01T00:00:00 PreemptTime=None X=1"; }
"""


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("srun: error: Node failure on n2\n", "failed"),
        (
            "slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:09 DUE TO NODE FAILURE ***\n",
            "failed",
        ),
        (
            "slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:09 DUE TO PREEMPTION ***\n",
            "preempted",
        ),
        ("", "preempted"),
    ],
)
def test_a_restart_without_a_verdict_is_a_preemption_only_where_no_node_failed(tmp_path, said, status):
    (tmp_path / "launch-r0-srun.log").write_text(said)
    _, mark, end = GOLDEN.read_text().partition("# ---- the end ----\n")
    assert mark
    done = subprocess.run(["bash", "-c", _BEFORE + end, "bash", tmp_path], capture_output=True, text=True)
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert (verdict["status"], verdict["reason"].strip()) == (status, said.strip() or "srun exited with 137"), (
        done.stderr
    )
