"""What a rendered job does with each answer of its own `hcp check`: the whole script runs, on stand-ins for Slurm."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import HANG_S
from support.rendering import HCP_WORDS, SITE

SRC = Path(__file__).resolve().parents[2] / "src"
SRUN = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
exec "$@"
"""
SCONTROL = """#!/bin/bash
if [[ $2 == hostnames ]]; then printf 'n1\\nn2\\n'; else echo 'NodeName=n1 NodeAddr=127.0.0.1 X=1'; fi
"""
PYTHON = """#!/bin/bash
code=$CODE
case "$*" in
    *' -m megatron_hcp check '*)
        case "$*" in *--assume=te=2.14*) code=$LATER ;; esac
        if [[ $code == kill ]]; then kill -SEGV $$; fi
        if [[ $code == *[014] && $WORDS == yes ]]; then echo '{"schema": "hcp.check/2", "ok": false}'; fi
        if [[ $code == 2 && $WORDS == yes ]]; then echo '{"schema": "hcp.error/1", "ok": false}'; fi
        if [[ $WORDS != yes ]]; then printf '%s\nsrun: error: n1: task 0: Exited with exit code 1\n' "$WORDS" >&2; fi
        exit "$code" ;;
    *' -m megatron_hcp.render.outcome '*) exec "$REAL" -m megatron_hcp.render.outcome "${@:5}" ;;
    *' -m megatron_hcp.render.preflight agree'*) echo te=2.14 ;;
    *' -m megatron_hcp.render.preflight'*) echo '{}' ;;
    *) echo "TRAINED $*" ;;
esac
"""
GOES = ("completed", 3, 0)


@pytest.fixture
def answered(hcp, tmp_path):
    """`answered(code, later=0, words="yes")`: how the job ends whose checks end so before and after its first phase."""

    def run(code, later=0, words="yes", python="python"):
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        stand_ins = {"srun": SRUN, "scontrol": SCONTROL, "scancel": "#!/bin/bash\n", "python": PYTHON}
        for name, text in stand_ins.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        words_of = ["--start", "srun", "--nodes", "2", *SITE, "--program", "train.py", "--python", programs / python]
        done = hcp("render", *words_of, "-o", "job.sbatch", "--", *HCP_WORDS, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "j", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n"}
        # The test's own answers: the ranks' places are not what is tried here.
        env = {
            "CODE": str(code),
            "LATER": str(later),
            "WORDS": words,
            "REAL": sys.executable,
            "PYTHONPATH": str(SRC),
            "PATH": f"{programs}:{os.environ['PATH']}",
        }
        job = subprocess.run(
            ["bash", "job.sbatch"], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, env={**slurm, **env}
        )
        verdict = json.loads((tmp_path / "j-7" / "verdict.json").read_text())
        assert verdict["exit_code"] == job.returncode
        events = [json.loads(line.partition(": ")[2]) for line in job.stdout.splitlines() if '"reason"' in line]
        reasons = [event["reason"] for event in events if event["event"] != "end"]
        if verdict["status"] == "stopped":
            assert verdict["reason"] == reasons[-1]
        assert ("TRAINED" in job.stdout) == (verdict["status"] == "completed")
        return (verdict["status"], verdict["phase"], job.returncode), reasons

    return run


def test_a_launch_that_is_fine_trains(answered):
    assert answered(0) == (GOES, [])


@pytest.mark.slow
def test_an_undecided_launch_trains_with_a_warning(answered):
    warning = "hcp check left the launch undecided; see the lines above"
    assert answered(4) == (GOES, [warning])
    assert answered(4, 4) == (GOES, [warning, warning])


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (1, "hcp check found errors in the launch"),
        pytest.param(2, "hcp check could not read the launch", marks=pytest.mark.slow),
        pytest.param(3, "hcp could not run: exit code 3", marks=pytest.mark.slow),
        pytest.param(126, "hcp could not run: exit code 126", marks=pytest.mark.slow),
        pytest.param(127, "hcp could not run: exit code 127", marks=pytest.mark.slow),
        ("kill", "hcp could not run: exit code 139"),
    ],
)
def test_any_other_answer_stops_the_job_with_its_reason(answered, code, reason):
    end, (said,) = answered(code)
    assert end == ("stopped", 0, 1) and said.startswith(reason)
    end, (said,) = answered(0, code)
    assert end == ("stopped", 1, 1)
    assert said.startswith(reason.replace("errors in the launch", "errors with the versions on the nodes"))


@pytest.mark.sample(4)
@pytest.mark.parametrize("code", [0, 1, 2, 4])
def test_an_exit_code_without_a_word_is_not_that_of_hcp(answered, code):
    """Python ends with 1 where there is no hcp, srun with 2 where there is no program: the last line before says it."""
    said = '/usr/bin/python3: No module named "hcp"'
    reason = f"hcp could not run: exit code {code}: /usr/bin/python3: No module named 'hcp'"
    assert answered(code, words=said) == (("stopped", 0, 1), [reason])


def test_an_interpreter_that_is_not_there_is_told_from_a_launch_with_errors(answered):
    (status, _, _), (reason,) = answered(0, python="nowhere")
    assert status == "stopped" and reason.startswith("hcp could not run: exit code 127: ")
    assert reason.endswith("nowhere: No such file or directory")
