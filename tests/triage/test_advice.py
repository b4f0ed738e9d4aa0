"""Across the attempts of a job: did the same cause come back, and what is to be done?"""

import re

import pytest

from megatron_hcp.triage.advice import came_back
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.screen_text import diagnosis_text
from support.logs import STEP, write_logs

START = (
    'hcp-job: {{"event": "start", "job": "7", "attempt": {a}, "start": "srun", "nodes": ["n1", "n2"], '
    '"gpus_per_node": 2}}\n'
)
ECC = "{rank}: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
TIME = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO TIME LIMIT ***\n"
RAISED = 'Traceback (most recent call last):\n  File "x.py", line 3, in f\n    next(data)\n'
STEPS = "".join(STEP.format(s=s, speed=400.0) for s in range(4))


def _diagnosis(tmp_path, *attempts):
    text = "".join(START.format(a=number) + said for number, said in enumerate(attempts))
    return triage(write_logs(tmp_path, a_log=text), CpPlan())


@pytest.mark.parametrize(
    ("attempts", "action", "again"),
    [
        (["0: ValueError: Unsupported communication type: x\n"], "stop", None),
        ([STEPS + ECC.format(rank=3)], "restart-without-node", None),
        ([STEPS + ECC.format(rank=3), STEPS + ECC.format(rank=3)], "restart-without-node", True),
        ([STEPS + ECC.format(rank=3), STEPS + ECC.format(rank=1)], "stop", True),
        ([STEPS + TIME, STEPS + TIME], "restart", True),
        (["0: ValueError: no tokenizer\n"], "stop", None),
        (
            ["0: FileNotFoundError: [Errno 2] No such file or directory: '/c/b/1.incomplete' -> '/c/b/1'\n"],
            "restart",
            None,
        ),
        ([STEPS + "0: ValueError: bad sample 5\n"], "stop", None),
        ([STEPS + "0: RuntimeError: the store is busy\n"], "restart", None),
        ([STEPS + "0: ValueError: bad sample 5\n", STEPS + "0: ValueError: bad sample 5\n"], "stop", True),
        ([STEPS + "0: ValueError: bad sample 5\n", STEPS + "0: ValueError: bad sample 6\n"], "restart", False),
        ([STEPS + "0: RuntimeError: Connection closed by peer [::1]:1\n"], "restart", None),
    ],
)
def test_the_advice_follows_from_whose_fault_it_is_and_whether_it_came_back(tmp_path, attempts, action, again):
    diagnosis = _diagnosis(tmp_path, *attempts)
    assert (diagnosis.advice.action, came_back(diagnosis.attempts)) == (action, again)
    assert [attempt.number for attempt in diagnosis.attempts] == list(range(len(attempts)))


@pytest.mark.parametrize(
    ("above", "action"),
    [
        ("", "restart"),
        ('    return self._call_impl(*args, **kwargs)\n  File "attention.py", line 300, in forward\n', "restart"),
        ("Setting OMP_NUM_THREADS environment variable for each process to be 1\n", "stop"),
        ('Traceback (most recent call last):\n  File "checkpointing.py", line 9, in load_checkpoint\n', "stop"),
    ],
    ids=["nothing", "frames", "start", "start-up-code"],
)
def test_an_excerpt_without_steps_shows_a_failure_before_the_first_only_where_it_shows_the_start(
    tmp_path, above, action
):
    advice = triage(write_logs(tmp_path, a_log=above + "RuntimeError: the store is busy\n"), CpPlan()).advice
    assert advice and advice.action == action
    assert ("before the first training step; the same" in advice.reason) == (action == "stop")


def test_the_node_to_leave_out_is_named(tmp_path):
    assert _diagnosis(tmp_path, STEPS + ECC.format(rank=3)).advice.node == "n2"


def test_a_link_that_failed_leaves_no_node_out(tmp_path):
    said = "n1:9:9 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129\n"
    advice = triage(write_logs(tmp_path, a_log=STEPS + said), CpPlan()).advice
    assert advice and (advice.action, advice.node) == ("restart", None) and "at which end" in advice.reason
    again = _diagnosis(tmp_path, *[STEPS + said] * 3).advice
    assert again and (again.action, again.node) == ("stop", None) and "again" in again.reason


AGENT = "E1127 15:34:50.203000 26747 torch/distributed/elastic/multiprocessing/api.py:1002] "
FAILED = AGENT + "failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: python3\n"


def test_a_second_report_of_torchruns_agent_is_of_a_further_attempt(tmp_path):
    """It says that it starts its workers again only where its logger informs."""
    first = "[rank1]: ValueError: no tokenizer\n" + FAILED.format(code=1, local=1, pid=5)
    second = "[rank0]: RuntimeError: CUDA out of memory\n" + FAILED.format(code=1, local=0, pid=7)
    diagnosis = triage(write_logs(tmp_path, a_log=first + second), CpPlan())
    said = [attempt.failure and attempt.failure.signature.id for attempt in diagnosis.attempts]
    assert said == ["exception", "gpu-memory"] and diagnosis.failure and diagnosis.failure.rank == 0
    other = second.replace("26747", "31000")
    alone = triage(write_logs(tmp_path, b_log=first + other), CpPlan())
    assert len(alone.attempts) == 1, "another node's agent reports on the same attempt"
    steps = triage(write_logs(tmp_path, c_log=first + STEPS[: STEPS.index("\n") + 1] + second), CpPlan())
    assert [attempt.steps for attempt in steps.attempts] == [0, 1]


@pytest.mark.parametrize("prefix", ["{}: ", "[pod/job-worker-{}-x/pytorch] ", "n{}: "], ids=["srun", "pods", "pdsh"])
def test_agents_of_two_nodes_may_have_one_process_id(tmp_path, prefix):
    """Each is process 1 of its pod."""
    reports = [prefix.format(node) + FAILED.format(code=1, local=node, pid=7) for node in (0, 1)]
    once = triage(write_logs(tmp_path, a_log="".join(reports)), CpPlan())
    assert len(once.attempts) == 1 and came_back(once.attempts) is None
    again = triage(write_logs(tmp_path, b_log="".join(reports) + reports[0]), CpPlan())
    assert len(again.attempts) == 2


def test_the_same_crash_in_both_attempts_of_torchrun_came_back(tmp_path):
    launcher = "".join(FAILED.format(code=-11, local=1, pid=pid) for pid in (5, 7))
    lost = "[rank0]: RuntimeError: Connection closed by peer [::1]:1\n"
    for attempt in (0, 1):
        folder = tmp_path / "none_x" / f"attempt_{attempt}" / "0"
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(lost)
    (tmp_path / "launcher.log").write_text(launcher)
    logs = [tmp_path / "launcher.log", *sorted(tmp_path.glob("none_x/*/*/*.log"))]
    diagnosis = triage(logs, CpPlan())
    assert came_back(diagnosis.attempts) and diagnosis.advice and diagnosis.advice.action == "stop"


@pytest.mark.parametrize(("at", "state"), [("10:00:06", "running"), ("10:00:55", "failed")])
def test_a_launchers_report_from_before_the_last_attempt_began_is_of_the_one_before(tmp_path, at, state):
    """Ranks' logs are named by attempt, torchrun's own has one report, and no word of the restart."""
    for attempt in (0, 1):
        steps = "".join(STEP.format(s=20 * attempt + s, speed=400.0) for s in range(5))
        lost = "[rank0]: RuntimeError: Connection closed by peer [::1]:1\n" * (not attempt)
        for rank, text in ((0, steps + lost), (1, "")):
            folder = tmp_path / "none_x" / f"attempt_{attempt}" / str(rank)
            folder.mkdir(parents=True)
            (folder / "stderr.log").write_text(text)
    report = FAILED.format(code=-9, local=1, pid=7)
    report = re.sub(r"^E\d{4} \S+", f"E0822 {at}.1", report)
    (tmp_path / "launcher.log").write_text(report)
    diagnosis = triage([tmp_path / "launcher.log", *sorted(tmp_path.glob("none_x/*/*/*.log"))], CpPlan())
    assert diagnosis.state == state
    failed = [attempt.number for attempt in diagnosis.attempts if attempt.failure]
    assert failed == ([0] if state == "running" else [0, 1])


def test_torchruns_own_restart_begins_an_attempt(tmp_path):
    text = (
        "[rank1]: RuntimeError: CUDA out of memory\n"
        "I0822 10:00:00.1 7 torch/distributed/elastic/agent/server/api.py:944] [default] Worker group FAILED. 3/3 "
        "attempts left; will restart worker group\n[rank0]: ValueError: Unsupported communication type: x\n"
    )
    diagnosis = triage(write_logs(tmp_path, a_log=text), CpPlan())
    assert [attempt.failure and attempt.failure.signature.id for attempt in diagnosis.attempts] == [
        "gpu-memory",
        "cp-comm-spelling",
    ]


def test_a_job_that_says_it_completed_is_believed(tmp_path):
    end = 'hcp-job: {"event": "end", "job": "7", "attempt": 0, "status": "completed"}\n'
    noise = "1: ERROR: libnvidia-ml\n1: RuntimeError: NVML shared library not found\n"
    assert _diagnosis(tmp_path, noise + end).failure is None
    assert _diagnosis(tmp_path, noise + end.replace("completed", "failed")).failure is not None


def test_a_job_whose_launcher_started_its_ranks_again_and_that_completed_is_believed(tmp_path):
    again = "1: [ERROR] failed (exitcode: -9) local_rank: 1 (pid: 8)\n1: [INFO] will restart worker group\n"
    end = 'hcp-job: {"event": "end", "job": "7", "attempt": 0, "status": "completed"}\n'
    said = STEPS + again + "1: [WARNING] Sending process 7 closing signal SIGTERM\n"
    assert _diagnosis(tmp_path, said + end).failure is None
    assert _diagnosis(tmp_path, said).failure is not None


NO_NVML = """\
0: [2026-11-22 12:44:43,164] [ERROR] [ft_launcher21588@vm] NVML Error: NVML Shared Library Not Found
0: Traceback (most recent call last):
0:   File "pynvml.py", line 3190, in _LoadNvmlLibrary
0:     nvmlLib = CDLL("libnvidia-ml.so.1")
0:               ^^^^^^^^^^^^^^^^^^^^^^^^^
0: OSError: libnvidia-ml.so.1: cannot open shared object file: No such file or directory
"""


def test_a_missing_nvml_that_ft_launcher_logs_is_no_failure(tmp_path):
    assert _diagnosis(tmp_path, NO_NVML).failure is None
    assert _diagnosis(tmp_path, NO_NVML + TIME).failure.signature.id == "time-limit"
    raised = NO_NVML.partition("\n")[2]
    assert _diagnosis(tmp_path, raised).failure.signature.id == "library-missing"


def test_what_follows_the_end_of_the_job_is_no_failure(tmp_path):
    after = "1: RuntimeError: DataLoader worker (pid 7) exited unexpectedly\nsrun: error: n1: task 0: Killed\n"
    assert _diagnosis(tmp_path, STEPS + TIME + after).failure.signature.id == "time-limit"
    assert _diagnosis(tmp_path, STEPS + after + TIME).failure.signature.id == "loader-killed"


TIMEOUT = (
    "[rank{0}]:[E822 10:30:00.1 x.cpp:6] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, "
    "OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800004 milliseconds before timing out.\n"
)


def test_the_first_collective_that_times_out_is_a_matter_of_the_network(tmp_path):
    first = triage(write_logs(tmp_path, a_log=TIMEOUT.format(0, 1) + TIMEOUT.format(1, 1)), CpPlan())
    assert first.advice and first.advice.action == "stop" and "never reached each other" in first.advice.reason
    assert "NCCL_SOCKET_IFNAME" in diagnosis_text(first, None)
    for log in (TIMEOUT.format(0, 7), STEPS + TIMEOUT.format(0, 1)):
        advice = triage(write_logs(tmp_path, b_log=log), CpPlan()).advice
        assert advice and advice.action == "restart"


@pytest.mark.parametrize(
    "said",
    [
        RAISED + "KeyboardInterrupt",
        "[ERROR] [launch.py:434:sigkill_handler] ['python'] exits with return code = -2",
        FAILED.format(code=-2, local=1, pid=5),
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***",
    ],
    ids=["Ctrl-C", "code", "worker", "scancel", "step"],
)
def test_where_a_person_ended_the_job_nothing_has_to_be_mended(tmp_path, said):
    diagnosis = triage(write_logs(tmp_path, a_log=STEPS + said + "\n"), CpPlan())
    assert diagnosis.state == "stopped" and diagnosis.advice and "nothing has to be mended" in diagnosis.advice.reason


def test_a_call_that_nccl_refuses_is_refused_again(tmp_path):
    said = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:328, {} (run with NCCL_DEBUG=WARN)\n"
    for reason, action in (("invalid usage", "stop"), ("unhandled system error", "restart")):
        advice = triage(write_logs(tmp_path, a_log=said.format(reason)), CpPlan()).advice
        assert advice and advice.action == action


def test_an_exit_code_that_refuses_is_of_a_launch_that_did_not_train(tmp_path):
    said = FAILED.format(code=2, local=1, pid=5)
    for steps, action in (("", "stop"), (STEPS, "restart")):
        advice = triage(write_logs(tmp_path, a_log=steps + said), CpPlan()).advice
        assert advice and advice.action == action and ("refuses" in advice.reason) == (action == "stop")
    died = triage(write_logs(tmp_path, a_log=STEPS + FAILED.format(code=-4, local=1, pid=5)), CpPlan()).advice
    assert died and died.action == "stop" and "another processor" in died.reason


def test_the_last_start_of_a_job_counts_where_it_trained_however_it_ended(tmp_path):
    begins = "--- arguments ---\n"
    ended = "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***\n"
    diagnosis = triage(write_logs(tmp_path, a_log=begins + STEPS + begins + STEPS + ended), CpPlan())
    assert (diagnosis.state, len(diagnosis.attempts)) == ("stopped", 2)


def test_a_start_in_place_that_only_meets_what_was_left_behind_leads_back_to_the_first_failure(tmp_path):
    again = "Setting OMP_NUM_THREADS environment variable for each process\n"
    gloo = "[rank0]: RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out, remote=[127.0.0.1]:1\n"
    first = "[rank1]: RuntimeError: expert 3 received 0 tokens\n"
    diagnosis = triage(write_logs(tmp_path, a_log=again + STEPS + first + again + gloo), CpPlan())
    assert diagnosis.failure and "expert 3" in diagnosis.failure.cause
    assert diagnosis.advice and diagnosis.advice.action == "stop"
    assert [one.failure and one.failure.signature.id for one in diagnosis.after] == ["gloo-loopback"]
    assert "attempt 1, started after it, did not train: Gloo could" in diagnosis_text(diagnosis, None)
    killed = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO TIME LIMIT ***\n"
    hung = triage(write_logs(tmp_path, c_log=again + STEPS + first + again + killed), CpPlan())
    assert hung.failure and "expert 3" in hung.failure.cause
    trained = triage(write_logs(tmp_path, b_log=again + STEPS + first + again + STEPS + gloo), CpPlan())
    assert trained.failure and "expert 3" not in trained.failure.cause


def test_a_node_is_left_out_by_a_name_that_others_know(tmp_path):
    block = "  time : 2026-08-22_10:00:03\n  host : {}\n  rank : 3 (local_rank: 1)\n  exitcode  : 1 (pid: 9)\n"
    for host, node in (("localhost", None), ("n7", "n7")):
        said = (
            "[rank3]: " + ECC.partition(": ")[2] + "Root Cause (first observed failure):\n[0]:\n" + block.format(host)
        )
        advice = triage(write_logs(tmp_path, a_log=STEPS + said), CpPlan()).advice
        assert advice and (advice.action, advice.node) == ("restart-without-node", node)


def test_steps_of_another_task_of_the_array_do_not_count(tmp_path):
    (tmp_path / "slurm-53_0.out").write_text(STEPS)
    (tmp_path / "slurm-53_1.out").write_text("Loading data\n" + RAISED + "RuntimeError: the store is busy\n")
    diagnosis = triage(sorted(tmp_path.glob("*.out")), CpPlan())
    assert diagnosis.attempts[-1].steps == 0 and diagnosis.advice and diagnosis.advice.action == "stop"
