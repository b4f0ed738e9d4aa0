"""Seconds of a piece of work: the median of runs after some that warm up."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from gpu_day.machine import has_gpu

WARM_UP, RUNS, MOST_S = 3, 15, 2.0


def device() -> torch.device:
    return torch.device("cuda" if has_gpu() else "cpu")


def seconds(work: Callable[[], Any]) -> float:
    """The median of up to `RUNS` runs, in `MOST_S` seconds; on a GPU by its own events."""
    for _ in range(WARM_UP):
        work()
    took: list[float] = []
    began = time.perf_counter()
    while len(took) < RUNS and (len(took) < 3 or time.perf_counter() - began < MOST_S):
        took.append(_once(work))
    return statistics.median(took)


def _once(work: Callable[[], Any]) -> float:
    if not has_gpu():
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3
