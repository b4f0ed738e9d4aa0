"""What a job makes of the exit code of ft_launcher itself."""

import json
import os
import subprocess
import sys

import pytest

from support.processes import HANG_S

TASK = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_GTIDS": "0", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
SAVES = """import pathlib, sys
f = pathlib.Path("ck/latest_checkpointed_iteration.txt")
f.parent.mkdir(exist_ok=True)
f.write_text("2")
print(" iteration        2/       3 |")
"""


@pytest.mark.parametrize(
    ("start", "code", "then"), [("ft_launcher", 93, "none"), ("ft_launcher", 1, "requeue"), ("srun", 93, "requeue")]
)
def test_a_job_whose_ft_launcher_asks_for_no_other_start_is_not_requeued(tmp_path, start, code, then):
    """It saved and may be requeued; the launcher has seen several starts of it, and says that one more is of no use."""
    spec = {"schema": "hcp.job/1", "start": start, "nodes": 1, "gpus_per_node": 1, "requeue": 2}
    (tmp_path / "job.json").write_text(json.dumps(spec))
    argv = [sys.executable, "-m", "megatron_hcp", "job", "run", "job.json", "--nodes=n1", "--program-words=3"]
    argv += ["--checkpoints=ck", "--", sys.executable, "-c", f"{SAVES}sys.exit({code})", "--seq-length", "8192"]
    done = subprocess.run(argv, cwd=tmp_path, env=os.environ | TASK, capture_output=True, text=True, timeout=HANG_S)
    verdict = json.loads((tmp_path / "verdict-r0.json").read_text())
    assert (verdict["status"], verdict["next"], done.returncode) == ("failed", then, code), done.stdout + done.stderr
    assert ("ft_launcher found that another start would not help" in verdict["reason"]) is (then == "none")
