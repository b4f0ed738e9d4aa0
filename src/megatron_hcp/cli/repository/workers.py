"""Has several processes answer, one for each core: what they find out, they leave in hcp's cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

_FEWEST = 20
"""Names for a process: starting one takes as long as checking a few files."""
_MOST = 8


def share_out(names: Sequence[str], answer: Callable[[Sequence[str]], None]) -> None:
    """Runs `answer` in several processes, each with its share of the names, and waits for them.

    Nothing is run for few names, and where there is one core or no way to tell (macOS, Windows). A process that fails
    says nothing: the caller, who answers what the cache then lacks, comes to the same error.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    workers = min(len(names) // _FEWEST, cores, _MOST)
    if workers < 2:
        return
    for worker in [_started(names[place::workers], answer) for place in range(workers)]:
        os.waitpid(worker, 0)


def _started(names: Sequence[str], answer: Callable[[Sequence[str]], None]) -> int:
    worker = os.fork()
    if worker:
        return worker
    try:
        answer(names)
    finally:
        os._exit(0)  # what the caller has not printed yet is not printed twice
