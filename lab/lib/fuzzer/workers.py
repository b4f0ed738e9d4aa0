"""Processes that run cases, so that one that hangs or dies takes nothing with it."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from fuzzer.case import Case
from fuzzer.readers import made
from fuzzer.run import Fault, Main, Seen, examine
from fuzzer.seeds import gathered
from fuzzer.shrink import shrunk
from fuzzer.watch import DECOY

Work = tuple[str, int]
"""Reader and number of a case."""
_ADDRESS_SPACE = 8 << 30
_DIES_AFTER_S = 30
"""Of CPU for one case, where nothing else could end it: time in C."""


class Plan(NamedTuple):
    """What all workers know."""

    seed: int
    corpora: tuple[str, ...]
    shrink: bool = True
    again: int = 1
    """One case of this many runs twice; drawn by its name, so that each reader has its part."""
    main: Main | None = None
    """Another command than hcp's, for tests."""


class Done(NamedTuple):
    """A case that was run; `case` is its smallest form, where a fault is seen for the first time."""

    work: Work
    digest: bytes
    faults: tuple[tuple[Fault, Case | None], ...]
    seconds: float
    code: object = None


def run_all(plan: Plan, works: Sequence[Work], jobs: int) -> Iterator[Done]:
    """Runs every case, those that are drawn for it twice: in two processes with other hashes where there are."""
    shares: list[list[Work]] = [[] for _ in range(jobs)]
    for number, work in enumerate(works):
        shares[number % jobs].append(work)
        if runs_again(work, plan.again):
            shares[(number + 1) % jobs].append(work)
    started = [_Worker(plan, share, at) for at, share in enumerate(shares) if share]
    workers = {worker.pipe: worker for worker in started}
    try:
        while workers:
            for ready in wait(list(workers)):
                assert isinstance(ready, Connection)
                worker = workers.pop(ready)
                yield from worker.answers()
                if worker.left:
                    workers[worker.pipe] = worker
                else:
                    worker.end()
    finally:
        for worker in workers.values():
            worker.end()


def runs_again(work: Work, again: int) -> bool:
    return zlib.crc32(f"{work[0]}:{work[1]}".encode()) % again == 0


class _Worker:
    """A process, and what it still has to do. One that died is followed by another."""

    def __init__(self, plan: Plan, left: list[Work], number: int) -> None:
        self.plan, self.left, self.number = plan, left, number
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe(duplex=False)
        os.environ["PYTHONHASHSEED"] = str(self.number + 1)
        self.begun = context.RawValue("L", 0)
        self.sent = list(self.left)
        self.process = context.Process(target=work, args=(theirs, self.plan, self.sent, self.begun), daemon=True)
        self.process.start()
        theirs.close()

    def answers(self) -> Iterator[Done]:
        try:
            batch = self.pipe.recv()
        except EOFError:
            self.process.join()
            # Cases before it whose batch was not sent yet run again.
            died = self.sent[self.begun.value]
            self.left.remove(died)
            code = self.process.exitcode
            case = made(died[0], self.plan.seed, died[1], gathered(self.plan.corpora))
            yield Done(died, b"", ((Fault("died", f"exit {code}"), case),), 0.0)
            self.pipe.close()
            if self.left:
                self._start()
            return
        self.left = self.left[len(batch) :]
        yield from batch

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def work(pipe: Connection, plan: Plan, works: Sequence[Work], begun: Any) -> None:
    """What a process does: runs the cases one after another, and sends what it saw."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(prefix="hcp-fuzz-", dir=memory if os.path.isdir(memory) else None) as place:
        batch: list[Done] = []
        for done in results(plan, works, Path(os.path.realpath(place)), begun):
            batch.append(done)
            if len(batch) == 50:
                _send(pipe, batch)
        _send(pipe, batch)
    pipe.close()


def _send(pipe: Connection, batch: list[Done]) -> None:
    if batch:
        pipe.send(batch)
        batch.clear()


def results(plan: Plan, works: Sequence[Work], place: Path, begun: Any) -> Iterator[Done]:
    """Runs the cases in this process; `begun` holds the place of the one that runs."""
    folder, package = place / "here", place / "path"
    folder.mkdir()
    (package / DECOY).mkdir(parents=True)
    (package / DECOY / "__init__.py").write_text("")
    sys.path.append(str(package))
    os.environ["HOME"] = os.environ["TMPDIR"] = str(place)
    tempfile.tempdir = str(place)
    os.environ.pop("HCP_UPSTREAM", None)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, hard))
    warm_up(folder, plan)
    known: set[Fault] = set()
    for count, (reader, number) in enumerate(works):
        if count % 200 == 0:
            gc.collect()
        begun.value = count
        _die_in(_DIES_AFTER_S)
        case = made(reader, plan.seed, number, gathered(plan.corpora))
        seen = examine(case, folder, plan.main)
        shutil.rmtree(place / ".cache", ignore_errors=True)  # each case runs, and runs again, without earlier answers
        faults = []
        for fault in seen.faults:
            smallest = None
            if fault not in known:
                known.add(fault)
                _die_in(20 * _DIES_AFTER_S)
                smallest = _smallest(case, fault, folder, plan.main) if plan.shrink else case
            faults.append((fault, smallest))
        yield Done((reader, number), digest(seen), tuple(faults), seen.seconds, seen.answer.code)


def warm_up(folder: Path, plan: Plan) -> None:
    """Imports what commands import when they are first called: that is no one's input's doing."""
    for reader in (
        "shell",
        "card",
        "render",
        "site",
        "lengths",
        "groups",
        "triage",
        "packed",
        "dumps",
        "plan",
        "message",
        "repository",
        "editor",
        "spec",
        "dryrun",
        "doctor",
    ):
        for number in range(3):
            examine(made(reader, plan.seed, number, gathered(plan.corpora)), folder)
    gc.collect()


def digest(seen: Seen) -> bytes:
    """What two runs of a case must have in common."""
    return hashlib.blake2b(repr(seen.answer).encode("utf-8", "surrogatepass"), digest_size=12).digest()


def _smallest(case: Case, fault: Fault, folder: Path, main: Main | None) -> Case:
    return shrunk(case, lambda other: fault in examine(other, folder, main).faults)


def _die_in(seconds: int) -> None:
    used = int(time.process_time())
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, hard))
