"""A few supervised worker processes on this machine: all end when one fails, time runs out, or this process ends.

The workers are forked from a parent that has already imported torch and megatron-core: four processes that each import
megatron-core take 13 s on two cores. torchrun is for real jobs; this is for a laptop.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError

_GRACE_S = 3.0
_PR_SET_PDEATHSIG = 1


class WorkerFailure(Exception):
    """The workers did not all finish: which one failed first, and how."""


class _Worker(NamedTuple):
    rank: int
    process: BaseProcess
    inbox: Connection


def run_workers(work: Callable[[int], Any], size: int, timeout: float) -> list[Any]:
    """What `work(rank)` returned in each of `size` new processes, in rank order: plain values, no tensors.

    No worker outlives this call. Nor does one outlive this process (on Linux), however it ends.

    Raises:
        WorkerFailure: a worker raised, died, or had not finished after `timeout` seconds.
        HcpError: what a worker raised as one.
    """
    context = multiprocessing.get_context("fork")
    workers: list[_Worker] = []
    with _ended_by_sigterm():
        try:
            for rank in range(size):
                inbox, outbox = context.Pipe(duplex=False)
                process = context.Process(target=_run_worker, args=(work, rank, outbox, os.getpid()))
                process.start()
                outbox.close()  # so that the pipe closes when the worker dies
                workers.append(_Worker(rank, process, inbox))
            results = _collect(workers, time.monotonic() + timeout, timeout)
            for worker in workers:
                worker.process.join(_GRACE_S)
            return results
        finally:
            for worker in workers:
                worker.process.kill()
            for worker in workers:
                worker.process.join()
                worker.inbox.close()


def die_with_parent(parent: int) -> None:
    """Lets the kernel kill this process when `parent`, which started it, dies (Linux only; a no-op elsewhere)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)


def _run_worker(work: Callable[[int], Any], rank: int, outbox: Connection, parent: int) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    torch = sys.modules.get("torch")
    if torch is not None:
        # OpenMP's threads do not survive a fork: a worker that starts some after its parent did hangs forever.
        torch.set_num_threads(1)
    try:
        outbox.send((True, work(rank)))
    except HcpError as error:
        outbox.send((False, error))
    except Exception:
        outbox.send((False, f"failed: {traceback.format_exc().strip()}"))


def _collect(workers: list[_Worker], deadline: float, timeout: float) -> list[Any]:
    results: dict[int, Any] = {}
    waiting: dict[Any, _Worker] = {worker.inbox: worker for worker in workers}
    failures: list[tuple[int, str | HcpError]] = []
    while waiting:
        ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for inbox in ready:
            worker = waiting.pop(inbox)
            is_fine, result = _receive(worker)
            if is_fine:
                results[worker.rank] = result
            else:
                # A rank that dies makes its peers' collectives fail a moment later, and their reports may arrive first.
                if not failures:
                    deadline = min(deadline, time.monotonic() + _GRACE_S)
                failures.append((worker.rank, result))
    late = ", ".join(str(worker.rank) for worker in waiting.values())
    if failures:
        rank, reason = min(failures, key=_is_consequence)
        if isinstance(reason, HcpError):
            raise reason
        others = f"rank {late} had not finished when " if late else ""
        raise WorkerFailure(f"{others}rank {rank} {reason}")
    if waiting:
        raise WorkerFailure(f"no result within {timeout:g} s; still running: rank {late}")
    return [results[worker.rank] for worker in workers]


def _is_consequence(failure: tuple[int, str | HcpError]) -> bool:
    return any(text in str(failure[1]) for text in ("Connection closed by peer", "Connection reset", "Broken pipe"))


def _receive(worker: _Worker) -> tuple[bool, Any]:
    try:
        return worker.inbox.recv()  # type: ignore[no-any-return]
    except (EOFError, OSError):
        worker.process.join()
        code = worker.process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended early with exit code {code}"
        return False, how


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM runs the clean-up, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
