"""What the logs of a job show, put together: how it ended, its first failure, and what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from megatron_hcp.triage.advice import Advice, Attempt, advise, meets_an_end
from megatron_hcp.triage.collective.collectives import Waited, collective_text
from megatron_hcp.triage.events import HANGS, LASTING, FileEvents
from megatron_hcp.triage.failure import Failure, by_attempt, failures_by_step, with_ends
from megatron_hcp.triage.inputs.dry_run import DryRunRefusal
from megatron_hcp.triage.is_cp_on import CpPlan, CpVerdict, judge
from megatron_hcp.triage.line import seconds_of
from megatron_hcp.triage.line_reader import LineReader
from megatron_hcp.triage.logged_job import LoggedJob
from megatron_hcp.triage.ranks.uneven import is_done as is_at_last_step
from megatron_hcp.triage.signatures.effects import EFFECTS
from megatron_hcp.triage.signatures.progress import is_of_training
from megatron_hcp.triage.signatures.row import Role, filled_cause, said_text

_FROM_OUTSIDE = ("preempted", "terminated")
"""The job's own words for an end that it did not choose."""
_MISMATCH = next(row for row in EFFECTS if row.id == "collective-mismatch")


@dataclass(frozen=True)
class Diagnosis:
    """What the logs of one job show. `noise` counts the failure lines that are not the first, by signature."""

    state: Literal["failed", "stopped", "running", "unclear", "no-failure"]
    """stopped: from outside, as by a preemption or a time limit. running: its last word is not that the training is
    done, as it is in a log without a failure that has ended. unclear: no signature found a failure, but nothing
    shows that there was none (`unclear`)."""
    failure: Failure | None
    cp: CpVerdict
    job: LoggedJob
    noise: Counter[str]
    survived: int
    steps: int
    files: tuple[Path, ...]
    """The logs that were read."""
    binary: tuple[Path, ...]
    """Files that begin like no log: they were not read."""
    bytes: int
    attempts: tuple[Attempt, ...] = ()
    """The attempts that the logs tell apart, in order; the last is the one that `failure` is of."""
    advice: Advice | None = None
    waited: Waited | None = None
    """The collective that the job stopped in."""
    dumps: tuple[Path, ...] = ()
    unread: tuple[tuple[Path, str], ...] = ()
    """Dumps that could not be read, and logs that were gone when they were to be read, each with why."""
    later: tuple[Failure, ...] = ()
    """Of the srun steps after the one of `failure`, the first failure of each that failed too."""
    unnamed: tuple[Path, int, str] | None = None
    """The first line that says error and that no signature knows, where no cause is known: its file, number, text."""
    plan: CpPlan = field(default_factory=CpPlan)
    """What the launch plans, as far as it is known."""
    after_done: tuple[tuple[Path, int, str], ...] = ()
    """What ended the job, or a rank of it, after the training was done: each its file, number, and what it was."""
    not_finite: tuple[tuple[Path, int, str], ...] = ()
    """Losses and gradient norms that are no numbers, and no failure: each its file, number, and what was said."""
    dry_run: tuple[DryRunRefusal, ...] = ()
    """What a dry run of the launch says that upstream refuses."""
    is_hierarchical: bool = False
    """Whether the launch or the log sets sizes of hierarchical context parallelism."""
    is_of_training: bool = True
    """Whether any line is one that a training job writes."""
    in_preamble: int = 0
    """Errors of the shell's, above the first line that a rank wrote."""
    is_done: bool = False
    """Whether the training says that it was done."""
    after: tuple[Attempt, ...] = ()
    """The attempts after the one of `failure`, in the same logs: they trained no step, and only met what it left."""

    @property
    def ok(self) -> bool:
        return self.state in ("running", "no-failure") and self.cp.state in ("on", "none", "unknown")

    def end(self) -> tuple[Path, int] | str | None:
        """What ended the job, as its logs say: the line of its failure, or its status; None while it runs."""
        if self.failure:
            return self.failure.path, self.failure.line
        return self.job.ends.get(self.job.attempt) or ("completed" if self.is_done else None)

    @property
    def unclear(self) -> Literal["error-line", "no-end", "no-step", "no-log"] | None:
        """Why the state is unclear: a line says error; only the shell failed, and ranks started below it; there is no
        training step; no line is of a training job."""
        if self.state != "unclear":
            return None
        if self.unnamed:
            return "error-line"
        return "no-end" if self.in_preamble else "no-step" if self.is_of_training else "no-log"


def conclude(reader: LineReader, plan: CpPlan, dumped: Waited | None, dump: Path | None = None) -> Diagnosis:
    """What was read, put together; `dumped` is what the flight recorder's dumps say, `dump` one of them."""
    files, job = by_attempt(reader.history.files), reader.job
    numbers = sorted({entry.attempt for entry in files if entry.attempt is not None}) or [0]
    attempts, by_step = [], []
    # A launcher that starts ranks again inside the job counts on: what comes after the job's own last number is of it.
    for number in numbers:
        own = [entry for entry in files if entry.attempt == number or (entry.attempt is None and number == numbers[-1])]
        status = job.ends.get(min(number, job.attempt))
        failed = [] if status == "completed" else failures_by_step(own, job.of_attempt(number))
        if status in _FROM_OUTSIDE:  # what a launcher or a rank says while it is being ended is no failure
            failed = [failure for failure in failed if failure.is_from_outside]
        by_step.append(failed)
        alike = [entry for entry in own if not failed or _is_of(failed[0], entry)]
        steps, begins = sum(entry.steps for entry in alike), any(entry.begins for entry in alike)
        failure = failed[0] if failed else None
        attempts.append(Attempt(number, failure, steps, begins, _silent(failure, alike)))
    # A launcher that would start its ranks again, and finds that another gave up, tells the end of the attempt before.
    while len(numbers) > 1 and numbers[-1] > job.attempt and not attempts[-1].steps and _is_echo(attempts[-1].failure):
        del attempts[-1], numbers[-1], by_step[-1]
    after = _consequences(attempts, files)
    last = len(attempts) - len(after)
    attempts, numbers, by_step = attempts[:last], numbers[:last], by_step[:last]
    current = [entry for entry in files if entry.attempt in (None, numbers[-1])]
    steps = sum(entry.steps for entry in files)
    noise = sum((entry.counts for entry in current), Counter[str]())
    survived = sum(entry.survived + entry.in_preamble for entry in files)
    failure, unnamed = attempts[-1].failure, None
    is_done = any(is_of_training(entry.over) for entry in current)
    if failure:
        noise[failure.signature.id] -= 1
    elif job.ends.get(min(numbers[-1], job.attempt)) == "completed":
        survived, noise, is_done = survived + sum(len(entry.seen) for entry in current), Counter(), True
    if not is_done and (failure is None or failure.kind == "effect"):
        unnamed = _unknown_line(current, failure)
    if (
        unnamed
        and failure is None
        and _OF_PEERS.search(unnamed[2])
        and any(entry.steps for entry in current)
        and all(map(_is_at_end, current))
    ):
        unnamed, is_done = None, True  # ranks end one after the other
    if failure is None and unnamed is None:
        unnamed = next(((entry.path, *entry.idle) for entry in current if entry.idle), None)
    waited = dumped or reader.waits.first(job.world())
    if dumped and dumped.mismatch and dump and not files:
        failure = _of_mismatch(dumped, dump)
        attempts[-1] = attempts[-1]._replace(failure=failure)
    if failure and waited and failure.signature.id in HANGS:
        failure = with_ends(_with_collective(failure, waited, job), current, job)
        attempts[-1] = attempts[-1]._replace(failure=failure)
    if failure and failure.signature.id == "rendezvous-timeout" and (barrier := reader.waits.arrivals.barrier()):
        rank = next(iter(barrier.missing), None) if reader.waits.arrivals.is_sure(barrier) else None
        cause = f"{failure.cause}: {barrier.said}"
        waited, failure = barrier, replace(failure, cause=cause, waited=barrier, rank=rank, node=None, local_rank=None)
        attempts[-1] = attempts[-1]._replace(failure=failure)
    cp = judge(reader.cp, job.groups, plan)
    is_shown = steps > 0 or is_done or cp.state not in ("none", "unknown") or any(entry.runs for entry in files)
    is_clear = unnamed is None and is_shown
    return Diagnosis(
        _state(failure, is_clear, steps > 0 and not is_done),
        failure,
        cp,
        job,
        +noise,
        survived,
        steps,
        (),
        (),
        0,
        tuple(attempts),
        advise(tuple(attempts)),
        waited,
        after=after,
        unnamed=unnamed,
        later=tuple(by_step[-1][1:]),
        in_preamble=sum(entry.in_preamble for entry in current),
        after_done=tuple(
            (entry.path, late.number, filled_cause(late.signature.cause, late.groups))
            for entry in current
            if (late := next((entry.late[role] for role in _TOLD if role in entry.late), None))
        ),
        is_done=is_done,
        is_hierarchical=bool(plan.hcp_sizes or plan.refused or reader.cp.echoed or reader.cp.has_sizes),
        not_finite=tuple(
            (entry.path, *note) for entry in current if not _is_lasting(failure) for note in entry.not_finite.notes()
        ),
    )


def _consequences(attempts: Sequence[Attempt], files: Sequence[FileEvents]) -> tuple[Attempt, ...]:
    """The last attempts, where they were started in place after one that trained and failed, and only met what that
    left: ranks that did not reach each other, or an end from outside before the first step."""
    count = next((count for count, one in enumerate(reversed(attempts)) if one.steps), len(attempts))
    trained = attempts[len(attempts) - count - 1] if 0 < count < len(attempts) else None
    if trained is None or trained.failure is None or trained.failure.is_from_outside:
        return ()
    later = tuple(attempts[len(attempts) - count :])
    paths = {entry.path for entry in files if entry.attempt == trained.number}
    in_place = all(any(entry.path in paths for entry in files if entry.attempt == one.number) for one in later)
    is_met = all(one.failure is None or one.failure.is_from_outside or meets_an_end(one.failure) for one in later)
    return later if in_place and is_met and later[-1].failure else ()


def _silent(failure: Failure | None, parts: Sequence[FileEvents]) -> float:
    if failure is None or failure.when is None:
        return 0
    steps = [entry.last_step for entry in parts if entry.path == failure.path and entry.last_step]
    return seconds_of(failure.when) - seconds_of(max(steps, default=failure.when))


def _is_of(failure: Failure, entry: FileEvents) -> bool:
    """Whether a log may tell of the task of a job array, and of the srun step, that failed."""
    return entry.name.task == failure.task and (not failure.step or entry.step in ("", failure.step))


def _of_mismatch(waited: Waited, dump: Path) -> Failure:
    """The failure that dumps alone show: ranks called different collectives, which none of them survives."""
    rank = waited.missing[0] if waited.missing else None
    text = collective_text(waited, "did not end")
    return Failure(_MISMATCH, "cause", text, rank, None, None, None, None, text, dump, 1, waited=waited)


def _state(
    failure: Failure | None, is_clear: bool, is_training: bool
) -> Literal["failed", "stopped", "running", "unclear", "no-failure"]:
    if failure:
        return "stopped" if failure.is_from_outside else "failed"
    return "unclear" if not is_clear else "running" if is_training else "no-failure"


def _is_echo(failure: Failure | None) -> bool:
    return failure is not None and failure.signature.role == "echo"


def _is_lasting(failure: Failure | None) -> bool:
    return failure is not None and failure.signature.id in LASTING


_OF_PEERS = re.compile(r"TCPStore|ProcessGroup|\brecvValue\b|sendBytes|Broken pipe|Connection reset")
"""What a rank says that finds others gone."""


def _is_at_end(entry: FileEvents) -> bool:
    """Whether a log's last step was the last one of the training, as far as it has steps."""
    return is_at_last_step(entry.course) or not entry.steps


_TOLD: tuple[Role, ...] = ("end", "death", "general", "origin")
"""Of what comes after the training was done, the first of these is reported; how ranks lose each other is not."""
_AGAIN = 3
"""So many warnings of one kind, and no training step, are not passed over."""


def _unknown_line(files: Sequence[FileEvents], failure: Failure | None) -> tuple[Path, int, str] | None:
    """The first line that says error and that no signature knows, above the failure where both are in one log.

    Where there is neither, nor a training step: what a warning means that repeats, or where a traceback breaks off.
    """
    drivers = any(entry.steps for entry in files if entry.kind != "worker")
    for entry in files:
        if drivers and entry.kind == "worker":
            continue  # Ray's driver shows its lines too
        event = entry.pending.get("unknown")
        if event and event.line.body.startswith("ls: ") and any(other.steps for other in files):
            continue  # a script's look at a folder: what trained does not need it
        if event and not (failure and failure.path == entry.path and failure.line <= event.number):
            return entry.path, event.number, said_text(event.line.body)
    if failure or any(entry.steps for entry in files):
        return None
    for entry in files:
        stall = entry.pending.get("stall")
        if stall and entry.counts[stall.signature.id] >= _AGAIN:
            cause = filled_cause(stall.signature.cause, stall.groups)
            return entry.path, stall.number, said_text(f"{cause}: {stall.line.body}")
    for entry in files:
        for event in entry.cut.values():
            at = event.groups["at"]
            return entry.path, event.number, said_text(f"the traceback breaks off here: {event.line.body}{at}")
    return None


def _with_collective(failure: Failure, waited: Waited, job: LoggedJob) -> Failure:
    """The failure in the words of the collective that timed out, at the rank that never reached it."""
    cause = collective_text(waited, f"timed out after {waited.seconds} s" if waited.seconds else "timed out")
    if waited.mismatch:
        failure = replace(failure, signature=_MISMATCH, kind="cause")
    if not waited.missing and waited.mismatch:
        return replace(failure, cause=cause, waited=waited)
    if not waited.missing:
        return replace(failure, cause=f"{cause}; these logs don't show which rank was missing", waited=waited)
    rank = waited.missing[0]
    node = job.node_of_rank.get(rank)
    if node is None and job.gpus_per_node and rank // job.gpus_per_node < len(job.nodes):
        node = job.nodes[rank // job.gpus_per_node]
    return replace(failure, cause=cause, waited=waited, rank=rank, node=node, local_rank=None, exit_code=None, pid=None)
