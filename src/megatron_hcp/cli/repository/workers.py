"""Has several processes answer, one for each core: what they find out, they leave in hcp's cache."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

_FEWEST = 20
"""Names for a process: starting one takes as long as checking a few files."""
_MOST = 8


def share_out(
    names: Sequence[str], answer: Callable[[Iterable[str]], None], show: Callable[[int], None] = lambda count: None
) -> None:
    """Runs `answer` in several processes, each with its share of the names, and waits for them.

    Nothing is run for few names, and where there is one core or no way to tell (macOS, Windows). A process that fails,
    or can't be started, says nothing: the caller, who answers what the cache then lacks, comes to the same error.
    `show` is called with the number of names that are answered so far. What it raises, or a signal, ends the processes.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    most = min(len(names) // _FEWEST, cores, _MOST)
    if most < 2:
        return
    read_end, write_end = os.pipe()
    workers: list[int] = []
    try:
        with suppress(OSError):  # there may be no more processes
            for place in range(most):
                workers.append(_started(names[place::most], answer, write_end))
        os.close(write_end)
        count = 0
        while answered := os.read(read_end, 4096):  # until all have ended
            count += len(answered)
            show(count)
    except BaseException:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        raise
    finally:
        os.close(read_end)
        for worker in workers:
            with suppress(ChildProcessError):  # nobody waits for it where SIGCHLD is ignored
                os.waitpid(worker, 0)


def _started(names: Sequence[str], answer: Callable[[Iterable[str]], None], write_end: int) -> int:
    worker = os.fork()
    if worker:
        return worker
    try:
        answer(_counted(names, write_end))
    finally:
        os._exit(0)  # what the caller has not printed yet is not printed twice


def _counted(names: Sequence[str], write_end: int) -> Iterator[str]:
    """The names, with a byte into the pipe after each."""
    for name in names:
        yield name
        os.write(write_end, b".")
