"""Waiting for processes in tests: never against a limit that a busy machine could reach."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

HANG_S = float(os.environ.get("HCP_HANG_S", "600"))
"""No honest run comes near, on any machine: what waits this many seconds hangs. Less, to see a test of code that was
broken on purpose fail."""


def is_running(pid: int) -> bool:
    """Whether the process runs. A zombie, which its parent has not reaped yet, does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def have_ended(pids: Iterable[int]) -> bool:
    """Waits until all these processes have ended; False if one hangs."""
    pids = list(pids)
    return comes_true(lambda: not any(map(is_running, pids)))


def comes_true(is_so: Callable[[], bool]) -> bool:
    """Waits until it is so; False if that hangs."""
    end = time.monotonic() + HANG_S
    while not is_so() and time.monotonic() < end:
        time.sleep(0.02)
    return is_so()
