"""`hcp job run` as a script starts it: one task on this machine, with a real check, a real program, a real verdict."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.needs import UPSTREAM
from support.processes import HANG_S

LAUNCH = ["--context-parallel-size", "1", "--num-layers", "2", "--seq-length", "8192"]
CHECK = ["--dialect=mlm", "--assume=nodes=1", "--assume=gpus_per_node=1", "--assume=start=srun"]
SPEC = {"schema": "hcp.job/1", "start": "srun", "nodes": 1, "gpus_per_node": 1}
TRAINS = "print(' iteration        3/       3 |')"
TASK = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_GTIDS": "0", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}


def running(folder):
    """The processes of upstream's code whose temporary folder is below that one."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            words, cwd = Path("/proc", entry, "cmdline").read_bytes(), os.readlink(f"/proc/{entry}/cwd")
        except OSError:
            continue
        if b"megatron_hcp.pretend" in words and cwd.startswith(folder):
            found.append(entry)
    return found


@pytest.fixture
def job(tmp_path):
    """`job(code, **spec)`: starts a job whose program is that Python code."""

    def start(code=TRAINS, words=LAUNCH, task=TASK, checkpoints=None, names="n1", **spec):
        (tmp_path / "job.json").write_text(json.dumps({**SPEC, **spec}))
        options = [] if checkpoints is None else [f"--checkpoints={checkpoints}"]
        argv = [sys.executable, "-m", "megatron_hcp", "job", "run", "job.json", f"--nodes={names}", "--program-words=3"]
        argv += [*options, "--", sys.executable, "-c", code, *words]
        env = {**os.environ, **task}
        return subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


@pytest.fixture
def ended(job, tmp_path):
    """`ended(code, **spec)`: (the exit code, the verdict, the output) of a job that was left alone."""

    def run(*words, **spec):
        process = job(*words, **spec)
        out, err = process.communicate(timeout=HANG_S)
        return process.returncode, json.loads((tmp_path / "verdict-r0.json").read_text()), out + err

    return run


def test_a_training_that_says_that_it_did_all_iterations_is_completed(ended, tmp_path):
    code, verdict, out = ended(check=CHECK, ranks=["--gpus-per-node=1"])
    assert (code, verdict["status"], verdict["phase"], verdict["reason"]) == (0, "completed", 3, "iteration 3 of 3"), (
        out
    )
    assert (tmp_path / "train-r0-node0.log").read_text() == "0:  iteration        3/       3 |\n"
    assert set(verdict["evidence"]) == {"check.json", "nodes.txt", "facts.txt", "ranks.txt", "ranks.log"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        (" iteration        2/       3 |", "ended-early", "iteration 2 of 3"),
        ("[exiting program after 220.1 minutes] datetime: x", "ended-early", "exiting program after 220.1 minutes"),
        ("a server is started", "undecided", "no line of its logs says"),
        ("[after training is done] datetime: x", "completed", ""),
    ],
)
def test_an_exit_code_of_0_alone_is_no_end_of_a_training(ended, said, status, words):
    code, verdict, out = ended(f"print({said!r})")
    assert (code, verdict["status"]) == (0, status), out
    assert words in verdict["reason"]


@pytest.mark.slow
def test_one_that_ends_early_goes_on_if_it_left_a_checkpoint_where_the_trainer_sees_it(ended, tmp_path):
    """The folder is relative, and the trainer's own: nothing else may be looked at or made."""
    writes = "open('ck/latest_checkpointed_iteration.txt', 'w').write('2'); print(' iteration        2/       3 |')"
    code, verdict, out = ended(writes, checkpoints="ck", requeue=1)
    assert (code, verdict["status"], verdict["next"]) == (0, "ended-early", "requeue"), out
    assert not (tmp_path / "ck" / ".hcp-job.json").exists(), "the claim on the folder is given back"


@pytest.mark.slow
def test_an_attempt_that_found_nothing_left_to_do_is_completed(job, tmp_path):
    writes = "open('ck/latest_checkpointed_iteration.txt', 'w').write('3'); print(' iteration        3/       3 |')"
    job(writes, checkpoints="ck").communicate(timeout=HANG_S)
    job("pass", checkpoints="ck", task={**TASK, "SLURM_RESTART_COUNT": "1"}).communicate(timeout=HANG_S)
    assert json.loads((tmp_path / "verdict-r1.json").read_text())["status"] == "completed"


@pytest.mark.slow
def test_a_launch_with_an_error_is_not_trained(ended, tmp_path):
    words = ["--context-parallel-size", "3", "--hierarchical-context-parallel-sizes", "2", "2", *LAUNCH[2:]]
    code, verdict, out = ended("open('trained', 'w')", words=[*words, "--cp-comm-type", "a2a+p2p"], check=CHECK)
    assert (code, verdict["status"], verdict["phase"], verdict["next"]) == (1, "stopped", 0, "none"), out
    assert verdict["reason"] == "hcp check found errors in the launch" and "HCP002" in out
    assert not (tmp_path / "trained").exists()


@pytest.mark.slow
def test_an_undecided_launch_trains_with_a_warning(ended):
    _, verdict, out = ended(check=["--dialect=bridge"], words=["model.context_parallel_size=2"])
    assert verdict["status"] == "completed" and "hcp check left the launch undecided" in out


@pytest.mark.slow
def test_a_dry_run_that_decides_nothing_lets_the_launch_train_with_a_warning(ended):
    _, verdict, out = ended(check=CHECK, dryrun=["--upstream=megatron-lm=nowhere"])
    assert verdict["status"] == "completed" and "hcp dryrun decides nothing: " in out and "nowhere" in out, out


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.upstream
def test_what_upstreams_own_code_refuses_is_not_trained(ended):
    tree = UPSTREAM / "megatron-core-0.17.1"
    _, verdict, out = ended(check=CHECK, dryrun=[f"--upstream={tree}"], words=[*LAUNCH, "--hidden-size", "100"])
    assert verdict["status"] == "stopped", out
    assert verdict["reason"].startswith("upstream's own code refuses the launch: "), verdict
    assert ": rank 0 in arguments: megatron/" in verdict["reason"] and "AssertionError: assert " in verdict["reason"], (
        verdict
    )
    assert '"event": "dryrun"' in out and '"network": ' in out
    assert not any("Error: " in line for line in out.splitlines() if not line.startswith("hcp-job: ")), out


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.upstream
def test_upstreams_code_ends_with_a_job_that_is_asked_to_end(job, tmp_path):
    tree = UPSTREAM / "megatron-core-0.17.1"
    mark = str(tmp_path)
    process = job(check=CHECK, dryrun=[f"--upstream={tree}"], task={**TASK, "TMPDIR": mark})
    ends = time.monotonic() + HANG_S
    while not (found := running(mark)) and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.1)
    assert found
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=HANG_S)
    assert json.loads((tmp_path / "verdict-r0.json").read_text())["status"] == "terminated"
    assert '"event": "dryrun"' not in out, "it was not waited for"
    assert not running(mark) and not list(tmp_path.glob("hcp-dryrun-*"))


@pytest.mark.slow
def test_a_launch_that_cannot_be_read_is_not_trained(ended):
    _, verdict, out = ended(check=CHECK, words=["b"])
    assert verdict["status"] == "stopped" and verdict["reason"].startswith("hcp check could not read the launch: "), out


@pytest.mark.parametrize(
    ("code", "ends", "words"),
    [
        ("import sys; sys.exit(17)", 17, "rank 0 on n1 exited with 17"),
        ("import os; os.kill(os.getpid(), 9)", 137, "rank 0 on n1 exited with 137"),
    ],
)
def test_the_exit_code_is_the_trainings(ended, code, ends, words):
    found, verdict, out = ended(code)
    assert (found, verdict["status"], verdict["exit_code"]) == (ends, "failed", ends), out
    assert words in verdict["reason"]


WAITS = """import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved"), sys.exit(0)))
print(" iteration        1/       3 |", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGUSR1, "preempted"), (signal.SIGTERM, "terminated")])
def test_a_signal_makes_the_trainer_save_and_slurm_may_still_say_that_it_preempted(job, tmp_path, number, status):
    process, log = job(WAITS, requeue=2), tmp_path / "train-r0-node0.log"
    ends = time.monotonic() + HANG_S
    while not (log.exists() and "iteration" in log.read_text()) and time.monotonic() < ends:
        time.sleep(0.1)
    process.send_signal(number)
    process.communicate(timeout=HANG_S)
    verdict, preempted = (json.loads((tmp_path / f"verdict-r0{of}.json").read_text()) for of in ("", ".preempted"))
    assert "saved" in log.read_text() and verdict["status"] == status
    assert (preempted["status"], preempted["next"]) == ("preempted", "requeue")


@pytest.mark.slow
def test_a_node_that_has_not_reported_when_slurm_signals_is_named(job, tmp_path):
    """Python hangs there: without its name, the next attempt would wait for the same node."""
    process = job(nodes=2, names="n1,n2", task={**TASK, "SLURM_NTASKS": "2"})
    ends = time.monotonic() + HANG_S
    while not (tmp_path / ".attempt-0" / "nodes" / "0").exists() and time.monotonic() < ends:
        time.sleep(0.1)
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=HANG_S)
    verdict = json.loads((tmp_path / "verdict-r0.json").read_text())
    assert verdict["reason"].startswith(
        "Slurm signalled that the time limit is near before it trained; n2 had not reported yet"
    )


@pytest.mark.slow
def test_a_folder_that_another_job_writes_to_is_not_written_to(job, tmp_path):
    first = job(WAITS, checkpoints="ck")
    ends = time.monotonic() + HANG_S
    while not (tmp_path / "train-r0-node0.log").exists() and time.monotonic() < ends:
        time.sleep(0.1)
    second = job(checkpoints="ck", task={**TASK, "SLURM_JOB_ID": "8"})
    out, _ = second.communicate(timeout=HANG_S)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=HANG_S)
    assert second.returncode == 1 and "job 7 writes checkpoints to ck; give each job a folder of its own" in out


RAY = """\
#!/bin/sh
echo 'Exception: The current node timed out during startup. This could happen because the GCS has become overloaded.'
exit 1
"""
"""What the head says (ray 2.52.1) on a machine that needs more than 30 s for it."""


def test_a_head_of_ray_that_does_not_start_ends_the_job_at_once_and_is_named(job, tmp_path):
    (tmp_path / "ray").write_text(RAY)
    (tmp_path / "ray").chmod(0o755)
    place = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "MASTER_ADDR": "n1", "MASTER_PORT": "1"}
    process = job(task={**TASK, **place}, start="ray")
    out, _ = process.communicate(timeout=HANG_S)
    verdict = json.loads((tmp_path / "verdict-r0.json").read_text())
    assert (process.returncode, verdict["status"]) == (1, "stopped"), out
    assert verdict["reason"].startswith("Ray on n1 exited with 1: Ray did not start on a node"), out


def test_a_spec_of_another_shape_is_refused_in_one_line(job, tmp_path):
    process = job(nodes="two")
    _, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, err.count("\n")) == (2, 1) and "nodes: found 'two'; wanted a whole number" in err


@pytest.mark.slow
def test_the_spec_in_a_script_and_the_verdict_are_what_their_schemas_say(ended, hcp, root):
    jsonschema = pytest.importorskip("jsonschema")
    words = "render --start torchrun --nodes 2 --gpus-per-node 8 --time 30 --program x.py --requeue 1 --stall 5".split()
    more = "--comm-gbps 9 --shared /data --free-gib 3 --checkpoint-dir ck -- --context-parallel-size 2".split()
    script = hcp(*words, *more).stdout
    spec = json.loads(script[script.index("<<'HCP_JOB'\n") + 12 : script.index("\nHCP_JOB\n")])
    _, verdict, _ = ended()
    for value, name in ((spec, "hcp.job.1"), (verdict, "hcp.verdict.2")):
        schema = json.loads((root / "schemas" / f"{name}.json").read_text())
        jsonschema.validate(value, schema)
        assert list(value) == [key for key in schema["properties"] if key in value]
    assert len(spec) == 13


TORCHRUN_ENDS = """\
Traceback (most recent call last):
  File "/w/pretrain_gpt.py", line 148, in befall
    raise RuntimeError("no luck")
RuntimeError: no luck
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
/w/pretrain_gpt.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_03:58:55
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 21208)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
"""What torchrun (torch 2.13) prints about a rank that raised, without its own traceback."""


def test_the_verdict_names_the_rank_and_not_the_task_of_its_launcher(ended):
    """The job's own triage has its folder alone, whose logs have labels of tasks: with torchrun these are no ranks."""
    _, verdict, out = ended(f"import sys; sys.exit({TORCHRUN_ENDS!r})", start="torchrun", gpus_per_node=2)
    assert verdict["reason"].startswith("rank 1 on n1 exited with 1 (the program raised RuntimeError: no luck"), out
