"""Which process a failure is of, where launchers, or those that waited, say it; and which run of an appended log."""

from megatron_hcp.triage.inputs.sources import find_logs
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_json
from support.logs import STEP, write_logs

STEPS = "".join(STEP.format(s=s, speed=400.0) for s in range(4))
RAISED = 'Traceback (most recent call last):\n  File "run.py", line 7, in main\n    go()\n'
WORKER = "failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: /usr/bin/python\n"
BLOCK = "[{n}]:\n  host      : localhost\n  rank      : {rank} (local_rank: {n})\n  exitcode  : 1 (pid: 4{n})\n"
ROOT = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\nFailures:\n{}"
    "Root Cause (first observed failure):\n{}"
)


def _read(tmp_path, **files):
    return triage(write_logs(tmp_path, **files), CpPlan())


def test_torch_multiprocessing_names_the_process_that_raised(tmp_path):
    """torch/multiprocessing/spawn.py: `-- Process %d terminated with the following error:`."""
    head = f"{RAISED}torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
    said = "-- Process 2 terminated with the following error:\n"
    failure = _read(tmp_path, a_log=f"{head}{said}{RAISED}RuntimeError: no shape\n").failure
    assert (failure.message, failure.local_rank, failure.rank) == ("RuntimeError: no shape", 2, 2)
    exited = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV\n"
    assert _read(tmp_path, c_log=exited).failure.rank == 1
    assert _read(tmp_path, d_log="n2: " + exited).failure.rank is None, "on one of several nodes"
    assert _read(tmp_path, b_log=f"{said}ready\n{RAISED}RuntimeError: no shape\n").failure.local_rank is None


def test_a_worker_that_ended_alone_raised_what_nobody_signed(tmp_path):
    raised = RAISED + "ValueError: no arrays\n"
    assert _read(tmp_path, a_log=raised + WORKER.format(code=1, local=3, pid=9)).failure.local_rank == 3
    two = "".join(WORKER.format(code=1, local=local, pid=9) for local in (1, 3))
    assert _read(tmp_path, b_log=raised + two).failure.local_rank is None


def test_of_workers_that_raised_alike_the_first_that_torchrun_saw_is_named(tmp_path):
    blocks = ROOT.format(BLOCK.format(n=1, rank=5), BLOCK.format(n=0, rank=4))
    alike = RAISED + "ImportError: cannot import name 'ops' from 'kernels'\n"
    assert _read(tmp_path, a_log=alike * 2 + blocks).failure.rank == 4
    other = RAISED + "ImportError: libfast.so: cannot open shared object file\n"
    assert _read(tmp_path, b_log=alike + other + blocks).failure.rank is None


def test_the_rank_that_called_mpi_abort_raised_what_nobody_signed(tmp_path):
    """Open MPI 5 (PRTE) states the code in a line of its own, and ends its report with a zero byte."""
    abort = "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\n  Proc: [[7,1],3]\n  Errorcode: 1\n\n"
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "mpirun.log").write_bytes((STEPS + RAISED + "KeyError: 3\n" + abort).encode() + b"---\n\0")
    failure = triage(find_logs([str(folder)]).paths, CpPlan()).failure
    assert failure is not None
    assert (failure.message, failure.rank, failure.exit_code) == ("KeyError: 3", 3, 1)


def test_a_file_with_many_zero_bytes_or_other_controls_is_no_text(tmp_path):
    texts = {
        "a": b"x" * 100 + b"\0",
        "b": b"x" * 100 + b"\0" * 100,
        "c": b"x" * 100 + b"\0\x02",
        "d": b"\xff" * 100 + b"\0",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.log").write_bytes(text)
    assert [path.name for path in find_logs([str(tmp_path)]).paths] == ["a.log"]


def test_of_a_gloo_collective_that_timed_out_the_only_rank_that_did_not_wait_is_named(tmp_path):
    waited = "[rank{0}]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 9000ms for recv "
    waited += "operation to complete\n"
    lost = "[rank{0}]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:3456\n"
    said = {f"rank{rank}_log": (lost if rank == 1 else waited).format(rank) for rank in range(4)}
    failure = _read(tmp_path, **said).failure
    assert failure.rank == 1 and failure.cause.endswith("; rank 1 alone did not wait in it")
    said["rank2_log"] = lost.format(2)
    assert _read(tmp_path, **said).failure.rank == 0, "two may have been busy"


def test_a_log_that_several_jobs_appended_to_tells_of_the_last_one(tmp_path):
    ended = "slurmstepd: error: *** JOB {} ON {} CANCELLED AT 2026-08-22T10:00:00 ***\n"
    log = STEPS + ended.format(70, "n1") + "starting\n" + STEPS + ended.format(71, "n2")
    last = _read(tmp_path, a_log=log)
    assert "JOB 71 ON n2" in last.failure.message and [one.steps for one in last.attempts] == [4, 4]
    once = _read(tmp_path, b_log=STEPS + ended.format(70, "n1") + ended.format(70, "n1"))
    assert len(once.attempts) == 1


def test_the_kernel_says_why_a_worker_was_killed(tmp_path):
    kernel = "[ 1913.861324] Memory cgroup out of memory: Killed process 41 (python3) total-vm:1345256kB\n"
    worker = WORKER.format(code=-9, local=1, pid=41) + BLOCK.format(n=1, rank=1).replace(": 1 (pid", ": -9 (pid")
    both = _read(tmp_path, agent_log=STEPS + worker, dmesg_log=kernel)
    assert (both.failure.signature.id, both.failure.rank, both.advice.action) == ("host-memory", 1, "stop")
    alone = _read(tmp_path, other_log=STEPS + worker)
    assert (alone.failure.kind, alone.advice.action) == ("report", "restart")


def test_of_several_processes_that_the_kernel_killed_the_jobs_own_counts(tmp_path):
    """A node's ring of messages has what was killed long before the job; the process id names the rank."""
    killed = "[Sat Aug 22 {time} 2026] Memory cgroup out of memory: Killed process {pid} (python3) total-vm:45256kB\n"
    kernel = killed.format(time="08:03:03", pid=40) + killed.format(time="10:00:40", pid=41)
    steps = "".join(f"2026-08-22 10:00:{s:02} step {s}/90 loss 2.5 lr 0.1\n" for s in range(9, 39))
    worker = WORKER.format(code=-9, local=1, pid=41) + BLOCK.format(n=1, rank=1).replace(": 1 (pid", ": -9 (pid")
    failure = _read(tmp_path, agent_log=steps + worker, dmesg_log=kernel).failure
    assert (failure.signature.id, failure.rank, failure.pid) == ("host-memory", 1, 41)
    block = BLOCK.format(n=1, rank=1).replace(": 1 (pid", ": -9 (pid")
    failure = _read(tmp_path, agent_log=steps + block, dmesg_log=kernel).failure
    assert (failure.signature.id, failure.rank) == ("host-memory", 1), "torchrun's report alone names the process"


def test_a_launcher_that_waited_for_torchrun_did_not_fail_first(tmp_path):
    engine = RAISED + "RuntimeError: server launch failed\n"
    launcher = RAISED + "scheduler.JobException: job trainer ended\n"
    report = WORKER.format(code=1, local=0, pid=9)
    failure = _read(tmp_path, a_log=engine + report + launcher).failure
    assert failure.message == "RuntimeError: server launch failed"
    assert diagnosis_json(_read(tmp_path, a_log=engine + report + launcher), None)["recommendation"]["action"] == "stop"
    assert "JobException" in _read(tmp_path, b_log=engine + launcher).failure.message


def test_rays_driver_says_that_it_was_told_to_end(tmp_path):
    """abseil's handler of signals, which Ray installs: no exception, and no launcher's word."""
    told = _read(
        tmp_path, a_log=STEPS + "*** SIGTERM received at time=1795836049 on cpu 0 ***\nPC: @  0x7f (unknown)\n"
    )
    assert told.state == "stopped"
    assert _read(tmp_path, b_log=STEPS + "*** SIGUSR2 received at time=1795836049 on cpu 0 ***\n").state != "stopped"


def test_paddle_says_that_it_was_told_to_end(tmp_path):
    said = "Error Message Summary:\n----\nFatalError: `{}` is detected by the operating system.\n"
    told = _read(tmp_path, a_log=STEPS + said.format("Termination signal"))
    assert told.state == "stopped" and told.failure.signature.id == "terminated"
    assert _read(tmp_path, b_log=STEPS + said.format("Segmentation fault")).state == "failed"


def test_what_torch_says_below_a_failed_nccl_operation_is_not_its_cause(tmp_path):
    said = (
        "[E ProcessGroupNCCL.cpp:414] Some NCCL operations have failed or timed out. To avoid this inconsistency, we "
        "are taking the entire process down.\nterminate called after throwing an instance of 'std::runtime_error'\n"
        "  what():  NCCL error: unhandled system error, NCCL version 2.10.3\n"
    )
    assert _read(tmp_path, a_log=said).failure.signature.id == "nccl-failed"


def test_the_rank_whose_compressed_file_is_cut_is_named_not_those_that_lost_it(tmp_path):
    lost = "[rank0]: RuntimeError: [x/pair.cc:553] Connection closed by peer [127.0.0.1]:3456\n"
    cut = (
        '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/usr/lib/gzip.py", line 518, in read\n'
        '[rank2]:     raise EOFError("Compressed file ended before the "\n'
        "[rank2]: EOFError: Compressed file ended before the end-of-stream marker was reached\n"
    )
    failure = triage(write_logs(tmp_path, a_log=lost, b_log=cut), CpPlan()).failure
    assert failure and (failure.signature.id, failure.rank) == ("file-cut", 2)
