"""Workers end together: whatever happens to one, there is a clear result in time and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from hcp.core.errors import HcpError
from hcp.runtime.procs import WorkerFailure, run_workers

PARENT = """
import os, sys, time
from hcp.runtime.procs import run_workers
def work(rank):
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(60)
run_workers(work, 3, 60)
"""


def test_results_come_in_rank_order():
    def work(rank):
        time.sleep(0.05 * (3 - rank))
        return rank * rank

    assert run_workers(work, 3, 30) == [0, 1, 4]


def test_a_worker_that_raises_is_named_with_its_traceback():
    def work(rank):
        if rank == 1:
            raise ValueError("no such layer")
        time.sleep(60)

    started = time.monotonic()
    with pytest.raises(WorkerFailure, match=r"rank 1 failed: Traceback(.|\n)*ValueError: no such layer"):
        run_workers(work, 3, 60)
    assert time.monotonic() - started < 20


def test_a_worker_that_is_killed_is_named_with_its_signal():
    def work(rank):
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(WorkerFailure, match="rank 2 was killed by SIGKILL"):
        run_workers(work, 3, 60)


def test_the_cause_goes_before_the_lost_connections_that_follow_from_it():
    def work(rank):
        if rank == 0:
            raise RuntimeError("Connection closed by peer")
        time.sleep(0.5)
        os._exit(3)

    with pytest.raises(WorkerFailure, match="rank 1 ended early with exit code 3"):
        run_workers(work, 2, 60)


def test_a_user_fault_in_a_worker_stays_a_user_fault():
    def work(rank):
        raise HcpError("needs 4 GPUs, found 0")

    with pytest.raises(HcpError, match="needs 4 GPUs, found 0"):
        run_workers(work, 2, 60)


def test_workers_that_hang_are_ended_when_time_is_up(tmp_path, gone_within):
    def work(rank):
        (tmp_path / str(rank)).write_text(str(os.getpid()))
        if rank:
            time.sleep(60)

    with pytest.raises(WorkerFailure, match="no result within 2 s; still running: rank 1, 2"):
        run_workers(work, 3, 2)
    pids = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert len(pids) == 3 and gone_within(pids, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_parent(number, gone_within):
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True)
    assert parent.stdout
    pids = [int(parent.stdout.readline()) for _ in range(3)]
    assert not gone_within(pids, 0)
    parent.send_signal(number)
    assert parent.wait(20) != 0
    assert gone_within(pids, 10)
