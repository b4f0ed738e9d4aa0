"""Across the attempts of a job: did the same cause come back, and what is to be done?"""

import pytest

from megatron_hcp.triage.advice import came_back
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_json
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
    advice = triage(write_logs(tmp_path, a_log=above + "RuntimeError: cu_seqlens\n"), CpPlan()).advice
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


@pytest.mark.parametrize(
    ("said", "steps", "action"),
    [
        ("IndentationError: unexpected indent", "", "stop"),
        ("IndentationError: unexpected indent", STEPS, "stop"),
        ("AttributeError: 'Namespace' object has no attribute 'deepspeed_config_dict'", "", "stop"),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", STEPS, "restart"),
        ("NameError: name 'garbage' is not defined", "", "stop"),
        ("ImportError: attempted relative import with no known parent package", "", "stop"),
        ("AssertionError: lr_warmup_steps must be less than lr_decay_steps", "", "stop"),
        ("AssertionError: the batch is empty", STEPS, "stop"),
        (RAISED + "StopIteration: dataset exhausted", STEPS, "stop"),
        ("RuntimeError: got mixed torch.Tensor and DTensor", "", "stop"),
        ("RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float", STEPS, "stop"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x24 and 16x4)", STEPS, "stop"),
        ("ValueError: Please specify `max_steps` in streaming mode.", "", "stop"),
        ("huggingface_hub.errors.LocalEntryNotFoundError: outgoing traffic has been disabled", "", "stop"),
        (RAISED + "MemoryError", STEPS, "stop"),
        ("ValueError: operands could not be broadcast together with shapes (9,2) (9,)", "", "stop"),
        ("OSError: [Errno 28] No space left on device", STEPS, "stop"),
        ("OSError: m/x is not a local folder and is not a valid model identifier", "", "stop"),
        ("slurmstepd: error: pyxis: failed to import docker image", "", "stop"),
        ("ValueError: bad sample 5", STEPS, "stop"),
        ("KeyError: 'qqzz'", "", "stop"),
        ("KeyError: 'qqzz'", STEPS, "stop"),
        ("RuntimeError: basic_ios::clear: iostream error", STEPS, "stop"),
        ("[rank 0] loss is nan at step 7, stopping", STEPS, "stop"),
        ("FileNotFoundError: File weights/a.pt does not exist.", "", "stop"),
    ],
)
def test_what_would_fail_again_is_not_started_again(tmp_path, said, steps, action):
    diagnosis = triage(write_logs(tmp_path, a_log=f"{steps}{said}\n"), CpPlan())
    assert diagnosis.advice and diagnosis.failure and diagnosis.advice.action == action, diagnosis.advice
    location = diagnosis_json(diagnosis, None)["recommendation"]["location"]
    assert location["line"] == diagnosis.failure.line, "the advice names the line that it rests on"


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


def test_where_memory_ran_out_decides_what_would_help(tmp_path):
    oom = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    head = 'Traceback (most recent call last):\n  File "weights.py", line 9, in load_weights\n    tensor.to("cuda")\n'
    loading = diagnosis_text(triage(write_logs(tmp_path, a_log=head + oom), CpPlan()), None)
    assert "before the first training step" in loading and "CP does not" in loading and "hcp plan" in loading
    training = diagnosis_text(triage(write_logs(tmp_path, b_log=STEPS + oom), CpPlan()), None)
    assert "after 4 logged steps" in training and "raise context_parallel_size" in training
    states = head.replace("weights.py", "fused_adam.py").replace("load_weights", "step") + oom
    stepping = diagnosis_text(triage(write_logs(tmp_path, c_log=states), CpPlan()), None)
    assert "optimizer states" in stepping and "context_parallel_size" not in stepping


def test_what_other_processes_hold_of_a_gpu_is_told_where_memory_ran_out(tmp_path):
    said = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 3 has a total capacity of "
        "79.18 GiB of which {free} MiB is free. Including non-PyTorch memory, this process has {own} GiB memory in "
        "use.\n"
    )
    told = diagnosis_text(triage(write_logs(tmp_path, a_log=said.format(free=16.88, own=47.5)), CpPlan()), None)
    assert "other processes hold 32 GiB" in told
    alone = diagnosis_text(triage(write_logs(tmp_path, b_log=said.format(free=16.88, own=78.9)), CpPlan()), None)
    assert "other processes" not in alone
