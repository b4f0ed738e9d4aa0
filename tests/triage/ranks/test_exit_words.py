"""A process that ended is known whatever launcher says so: who it was, and by which exit code or signal."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import write_logs

ELASTIC = "torch.distributed.elastic."
REPORTS = {
    "composer": ("ERROR:composer.cli.launcher:Rank 5 crashed with exit code -7.\n", (5, None, -7)),
    "Lightning": (
        "[rank: 3] Child process with PID 812 terminated with code 4. Forcefully terminating\n",
        (3, None, 4),
    ),
    "spawn": (
        "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with exit code 9\n",
        (2, 2, 9),
    ),
    "spawned": (
        "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGSEGV\n",
        (2, 2, -11),
    ),
    "Horovod": ("Process name: 6\nExit code:    1\n", (6, None, 1)),
    "Open MPI": ("  Process name: [[4411,1],2]\n  Exit code:    3\n", (2, None, 3)),
    "PRTE": ("  Process name: [prterun-n1-77@1,3]\n  Exit code:    8\n", (3, None, 8)),
    "mpirun": (
        "mpirun noticed that process rank 4 with PID 70 on node n2 exited on signal 12 (User defined signal 2).\n",
        (4, None, -12),
    ),
    "HTCondor": ("\t(0) Abnormal termination (signal 11)\n", (None, None, -11)),
    "HTCondor's value": ("\t(1) Normal termination (return value 3)\n", (None, None, 3)),
}


@pytest.mark.parametrize("report, expected", REPORTS.values(), ids=REPORTS)
def test_every_launchers_word_tells_who_ended_and_how(tmp_path, report, expected):
    failure = triage(write_logs(tmp_path, a_log="training on rank 0 of 8\n" + report), CpPlan()).failure
    assert failure is not None and failure.kind == "report"
    assert (failure.rank, failure.local_rank, failure.exit_code) == expected


@pytest.mark.parametrize(
    "line",
    [
        "SystemExit is raised. Exit code: 1 was caught",
        "all tasks completed with status 0",
        "job exited with code 0",
        "(1) Normal termination (return value 0)",
        "Trial 4 finished with value: 27.5 and parameters: {'return_scale': 2}",
    ],
)
def test_a_good_end_is_no_report_of_a_failure(tmp_path, line):
    assert triage(write_logs(tmp_path, a_log=f"training on 8 ranks\n{line}\n"), CpPlan()).failure is None


@pytest.mark.parametrize("signal, name", [(10, "SIGUSR1"), (12, "SIGUSR2"), (24, "SIGXCPU"), (31, "SIGSYS")])
def test_a_rank_that_a_signal_killed_precedes_the_rendezvous_that_others_lost(tmp_path, signal, name):
    gave_up = f"{ELASTIC}rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.\n"
    killed = "E0822 10:00:01.5 9 torch/distributed/elastic/multiprocessing/api.py:869] failed "
    killed += f"(exitcode: {-signal}) local_rank: 1 (pid: 12) of binary: p\n"
    failure = triage(
        write_logs(tmp_path, a_log="2026-08-22 10:00:00 start\n" + gave_up, b_log=killed), CpPlan()
    ).failure
    assert failure is not None and failure.exit_code == -signal and failure.local_rank == 1
    assert name in failure.cause


def test_a_bus_error_at_the_start_would_come_again(tmp_path):
    died = "Rank 5 crashed with exit code -7.\n"
    diagnosis = triage(write_logs(tmp_path, a_log="Loading the tokenizer of 8 ranks\n" + died), CpPlan())
    assert diagnosis.advice and diagnosis.advice.action == "stop" and "/dev/shm" in diagnosis.advice.reason
    trained = "".join(f"step {number} loss 2.5 lr 0.1\n" for number in range(5))
    diagnosis = triage(write_logs(tmp_path, a_log=trained + died), CpPlan())
    assert diagnosis.advice and diagnosis.advice.action == "restart"
