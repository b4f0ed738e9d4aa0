"""Workers end together: whatever happens to one, there is a clear result in time and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.proofs.procs import WorkerFailure, run_workers
from support.processes import HANG_S, have_ended, is_running

PARENT = """
import os, signal, sys, time
from megatron_hcp.proofs.procs import run_workers
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what it puts into the background without
def work(rank):
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(10**6)
run_workers(work, 3, 10**6)
"""


def test_results_come_in_rank_order():
    def work(rank):
        time.sleep(0.05 * (3 - rank))
        return rank * rank

    assert run_workers(work, 3, HANG_S) == [0, 1, 4]


@pytest.mark.slow
def test_a_worker_that_raises_is_named_with_its_traceback():
    def work(rank):
        if rank == 1:
            raise ValueError("no such layer")
        time.sleep(10**6)

    with pytest.raises(WorkerFailure, match=r"rank 1 failed: Traceback(.|\n)*ValueError: no such layer"):
        run_workers(work, 3, HANG_S)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_named_with_its_signal():
    def work(rank):
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(10**6)

    with pytest.raises(WorkerFailure, match="rank 2 was killed by SIGKILL"):
        run_workers(work, 3, HANG_S)


@pytest.mark.slow
def test_the_cause_goes_before_the_lost_connections_that_follow_from_it(monkeypatch):
    monkeypatch.setattr("megatron_hcp.proofs.procs._GRACE_S", HANG_S)

    def work(rank):
        if rank == 0:
            raise RuntimeError("Connection closed by peer")
        time.sleep(0.5)
        os._exit(3)

    with pytest.raises(WorkerFailure, match="rank 1 ended early with exit code 3"):
        run_workers(work, 2, HANG_S)


def test_a_user_fault_in_a_worker_stays_a_user_fault():
    def work(rank):
        raise HcpError("needs 4 GPUs, found 0")

    with pytest.raises(HcpError, match="needs 4 GPUs, found 0"):
        run_workers(work, 2, HANG_S)


@pytest.mark.slow
def test_workers_that_hang_are_ended_when_time_is_up(tmp_path):
    def work(rank):
        (tmp_path / str(rank)).write_text(str(os.getpid()))
        if rank:
            time.sleep(10**6)

    with pytest.raises(WorkerFailure, match="no result within 8 s; still running: rank 1, 2"):
        run_workers(work, 3, 8)  # time enough for three to start
    pids = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert len(pids) == 3 and have_ended(pids)


@pytest.mark.sample(3)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_parent(number):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout
    pids = [int(parent.stdout.readline()) for _ in range(3)]
    assert all(map(is_running, pids))
    parent.send_signal(number)
    assert parent.wait(HANG_S) != 0
    assert have_ended(pids)


@pytest.mark.torch
def test_workers_of_a_parent_that_has_used_threads_do_not_wait_for_them() -> None:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        torch.arange(1 << 22).sum()  # the parent's pool of threads exists now
        assert run_workers(lambda rank: int(torch.ones(1 << 22).sum()), 2, HANG_S) == [1 << 22, 1 << 22]
    finally:
        torch.set_num_threads(before)
