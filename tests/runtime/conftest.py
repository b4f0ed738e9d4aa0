"""Worker processes for tests that need several ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def run_ranks(work: Callable[[int], Any], size: int = 4, timeout: float = 60) -> list[Any]:
    """What `work(rank)` returned on each of `size` ranks that share a gloo world."""
    import tempfile
    from argparse import Namespace

    from hcp.runtime.procs import run_workers
    from hcp.runtime.workers import joined_world

    with tempfile.TemporaryDirectory() as folder:
        def in_world(rank: int) -> Any:
            with joined_world(rank, size, Namespace(timeout=timeout), f"{folder}/store"):
                return work(rank)

        return run_workers(in_world, size, timeout)


@pytest.fixture
def ranks():  # type: ignore[no-untyped-def]
    return run_ranks


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_end(pids: Iterable[int], seconds: float) -> bool:
    """Whether all these processes have ended within `seconds` (a zombie has)."""
    end = time.monotonic() + seconds
    pids = list(pids)
    while any(map(_is_running, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(_is_running, pids))


@pytest.fixture
def gone_within():  # type: ignore[no-untyped-def]
    return wait_for_end
