"""Steps that run as tasks through submitit: on this machine, and on a real Slurm, where they go on after a limit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.skills.card import Card, Step
from megatron_hcp.skills.submitted import Submission, run_submitted
from support.cards import skill_in, step
from support.processes import HANG_S

pytest.importorskip("submitit")
CARD = Card("a-skill", "t", "s", {"x": ">=1"}, (), (), (), (), (), (), Path("."))
RAN = "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + '\\n')\n"
WAITS = RAN + "import os, time\nwhile not os.path.exists(sys.argv[3]):\n    time.sleep(0.05)\n"


def python(name: str, code: str, *words: object) -> tuple[Card, Step]:
    run = ("python", "-c", code, *map(str, words))
    return CARD, Step(id=name, run=run, level="cpu", timeout_s=HANG_S)


@pytest.mark.slow
def test_a_task_that_dies_fails_its_own_steps_and_no_others(tmp_path: Path) -> None:
    dies = "import os, signal\npid = os.getppid()\nos.kill(pid, signal.SIGKILL)\n"
    seen: list[str] = []
    steps = [python("first", "pass"), python("kills", dies), python("third", "raise ValueError('odd')")]
    submission = Submission("local", 3, tmp_path / "tasks", {})
    results = run_submitted(steps, submission, lambda result: seen.append(result.step.id))
    assert seen == ["first", "kills", "third"]
    assert [result.status for result in results] == ["passed", "failed", "failed"]
    assert results[1].reason.startswith("task ") and "odd" in results[2].reason + results[2].last_line


def test_what_submitit_does_not_know_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HcpError, match=r"submitit refuses --submit-with nonsense=1: .*nonsense") as caught:
        run_submitted([python("first", "pass")], Submission("local", 1, tmp_path, {"nonsense": 1}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--submit-with", "time=5"], "found --submit-with without --executor"),
        (["--executor", "local", "--submit-with", "time"], "wanted NAME=VALUE"),
        (["--executor", "local", "--record"], "found --executor with --record"),
    ],
)
def test_options_that_do_not_fit_are_one_line(hcp, tmp_path: Path, words: list[str], said: str) -> None:
    done = hcp("verify", "--trust", skill_in(tmp_path, step()), *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and said in done.stderr


@pytest.mark.slurm
def test_an_array_on_slurm_goes_on_after_a_signal_and_gives_all_results(slurm, tmp_path: Path) -> None:
    """The step that was done before Slurm's signal is not run again; the one that was not done is."""
    log, go = tmp_path / "ran", tmp_path / "go"
    names = ["done", "other", "waits", "last"]
    steps = [
        step(id=name, run=["python", "-c", WAITS if name == "waits" else RAN, str(log), name, str(go)])
        for name in names
    ]
    words = ["--executor", "slurm", "--jobs", "2", "--submit-with", "partition=debug", "--submit-with", "time=5"]
    skill = str(skill_in(tmp_path, *steps))
    verify = subprocess.Popen(
        [sys.executable, "-m", "megatron_hcp", "verify", "--trust", skill, *words, "--format", "json"],
        cwd=tmp_path,
        env={**os.environ, **slurm.env},
        stdout=subprocess.PIPE,
        text=True,
    )
    slurm.wait_until(lambda: log.exists() and "waits" in log.read_text(), "the second step of the first task")
    array, task = re.findall(r"^(\d+)_(\d+)\b", slurm.run("squeue", "-h", "-t", "R", "-o", "%i").stdout, re.M)[0]
    time.sleep(1)
    slurm.run("scancel", "--signal=USR2", f"{array}_{task}")
    slurm.wait_until(lambda: "PENDING" in slurm.run("squeue", "-h", "-o", "%T").stdout, "its requeue")
    go.touch()
    time.sleep(3)  # as Cluster.hurry: Slurm revokes a job's credential by the second
    slurm.run("scontrol", "update", f"JobId={array}_{task}", "StartTime=now")
    out, _ = verify.communicate(timeout=HANG_S)
    report = json.loads(out)
    assert [(one["step"], one["status"]) for one in report["steps"]] == [(name, "passed") for name in names], report
    ran = log.read_text().split()
    assert sorted(ran) == sorted([*names, "waits"]), "only the step that was interrupted ran twice"
