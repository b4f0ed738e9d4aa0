"""`hcp job run` in a pod: one task per pod, whose exit code is all that Kubernetes sees of the verdict."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from support.processes import HANG_S

SPEC = {"schema": "hcp.job/1", "start": "torchrun", "nodes": 1, "gpus_per_node": 1, "requeue": 2}


@pytest.fixture
def pod(tmp_path):
    """`pod(code, index)`: starts the supervisor of a pod whose launcher is that Python code."""

    def start(code, index=0, **spec):
        (tmp_path / "job.json").write_text(json.dumps({**SPEC, **spec}))
        argv = [sys.executable, "-m", "megatron_hcp", "job", "run", "job.json", "--folder=run", "--attempt=0"]
        argv += ["--checkpoints=ck", "--program-words=3", "--", sys.executable, "-c", code]
        env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        env |= {"JOB_COMPLETION_INDEX": str(index), "HCP_JOB_ID": "u1", "HCP_NODE_NAME": f"gpu-{index}"}
        return subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def verdict_in(tmp_path):
    return json.loads((tmp_path / "run" / "verdict.json").read_text())


SAVES = "open('ck/latest_checkpointed_iteration.txt', 'w').write('2'); "


SUSPECT = "First rerun: unexpected result is reproducible"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "ends", "status", "following"),
    [
        ("print(' iteration        3/       3 |')", 0, "completed", "none"),
        (SAVES + "print(' iteration        2/       3 |')", 75, "ended-early", "requeue"),
        ("import sys; sys.exit(1)", 1, "failed", "none"),
        (SAVES + "import sys; sys.exit(1)", 75, "failed", "requeue"),
        ("import sys; sys.exit(16)", 16, "failed", "requeue"),
        (SAVES + "import sys; sys.exit(17)", 17, "failed", "none"),
        (f"print({SUSPECT!r}, flush=True); import sys; sys.exit(17)", 17, "failed", "requeue"),
        ("import os; os.kill(os.getpid(), 9)", 1, "failed", "none"),
    ],
)
def test_the_exit_code_says_whether_another_attempt_helps(pod, tmp_path, code, ends, status, following):
    process = pod(code)
    out, err = process.communicate(timeout=HANG_S)
    verdict = verdict_in(tmp_path)
    assert (process.returncode, verdict["status"], verdict["next"]) == (ends, status, following), out + err
    assert verdict["exclude"] == (["gpu-0"] if SUSPECT in code else []), "the node to cordon"
    assert verdict["final"] and verdict["job"] == "u1" and verdict["nodes"] == ["gpu-0"]


WAITS = """import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(0)))
print(" iteration        1/       3 |", flush=True)
time.sleep(600)
"""


def wait_for(path, text):
    ends = time.monotonic() + HANG_S
    while not (path.exists() and text in path.read_text()) and time.monotonic() < ends:
        time.sleep(0.1)


@pytest.mark.slow
def test_an_eviction_makes_the_trainer_save_and_the_job_starts_again(pod, tmp_path):
    launcher = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {WAITS!r}]).returncode)"
    process, log = pod(launcher), tmp_path / "run" / "train-r0-node0.log"
    wait_for(log, "iteration")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=HANG_S)
    verdict = verdict_in(tmp_path)
    assert "saved" in log.read_text() and (process.returncode, verdict["status"]) == (75, "preempted")
    assert verdict["reason"].startswith("Kubernetes ended a pod")


@pytest.mark.slow
def test_all_pods_end_with_the_code_of_the_verdict(pod, tmp_path):
    """Whichever pod Kubernetes sees fail first decides, and a launcher's own code is not the rank's."""
    fails = (
        SAVES + "import time; print(' iteration        2/       3 |', flush=True); time.sleep(1); raise SystemExit(17)"
    )
    waits = "import os, time\nwhile not os.path.exists('ck/latest_checkpointed_iteration.txt'): time.sleep(0.1)\n"
    other = waits + "time.sleep(3); raise SystemExit(1)"
    pods = [pod(code, index, nodes=2) for index, code in enumerate((fails, other))]
    ended = [(process.communicate(timeout=HANG_S), process.returncode) for process in pods]
    assert [code for _, code in ended] == [17, 17], ended
