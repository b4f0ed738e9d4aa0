"""The first failure of a job: which event came first, what it means, and on which rank and node it happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from megatron_hcp.triage.collective.collectives import Waited
from megatron_hcp.triage.events import NAMES_THE_END, SENT_FROM_OUTSIDE, Event, FileEvents
from megatron_hcp.triage.exit_codes import ABORTED, INTERRUPTED, ProcessEnd, explain_code
from megatron_hcp.triage.history import parts_by_step
from megatron_hcp.triage.line import NOBODY, When, without_figures
from megatron_hcp.triage.logged_job import LoggedJob
from megatron_hcp.triage.names import node_name
from megatron_hcp.triage.number import whole
from megatron_hcp.triage.raised.frames import Frame
from megatron_hcp.triage.raised.survived import RAISED
from megatron_hcp.triage.ranks.ended_first import Said
from megatron_hcp.triage.ranks.place import are_tasks_ranks, place_of
from megatron_hcp.triage.selection import first_event
from megatron_hcp.triage.signatures.row import Role, Signature, filled_cause, said_text
from megatron_hcp.triage.xids import meaning

Kind = Literal["cause", "effect", "report"]
_T = TypeVar("_T")
_KINDS: dict[Role, Kind] = {
    "death": "report",
    "origin": "effect",
    "effect": "effect",
    "report": "report",
    "echo": "report",
}


@dataclass(frozen=True)
class Failure:
    """The first failure: what, where, and how it was said."""

    signature: Signature
    kind: Kind
    """Whether the line says what went wrong, or only that something did."""
    cause: str
    rank: int | None
    node: str | None
    local_rank: int | None
    when: When | None
    timed_by: Literal["line", "neighbour", "launcher"] | None
    """What states `when`: the line, lines of its rank seconds above and below it, or torchrun's report on the rank."""
    message: str
    path: Path
    line: int
    exit_code: int | None = None
    pid: int | None = None
    rule: str = ""
    launcher: str = ""
    """Whom the launcher saw end first, where the failure is an effect."""
    ranks: tuple[int, ...] = ()
    """All ranks that wrote the same line, as far as they were counted."""
    step: str = ""
    """srun's step (`12.0`), where the log says which."""
    waited: Waited | None = None
    """The collective that timed out, and who did not arrive."""
    task: int | None = None
    """Of a job array: which of its tasks failed."""
    frames: tuple[Frame, ...] = ()
    """Of its traceback, the innermost first."""
    more: str = ""
    """What the exception's text goes on with, in the lines below."""

    @property
    def is_from_outside(self) -> bool:
        """Whether the job was stopped, and did not fail itself, as far as its logs show."""
        if self.kind == "report" and self.exit_code in INTERRUPTED:
            return True
        return self.signature.role == "end" or self.signature.id in (*SENT_FROM_OUTSIDE, *NAMES_THE_END)


def by_attempt(files: list[FileEvents]) -> list[FileEvents]:
    """The logs; one that names no attempt is of the last but one where all its events lie behind that one's steps,
    and before the last began."""
    numbers = {-2, -1, *(entry.attempt for entry in files if entry.attempt is not None)}  # no log has the first two
    *_, before, last = sorted(numbers)
    began = [entry.began for entry in files if entry.attempt == last and entry.began]
    ended = [when for entry in files if entry.attempt == before and (when := entry.last_step or entry.began)]
    for entry in files if began and ended else ():
        if entry.attempt is None:
            events = (*entry.pending.values(), *entry.further, *entry.ends)
            times = [when for when in (entry.last_step, *(event.when for event in events)) if when]
            if times and max(ended) <= min(times) and max(times) < min(began):
                entry.attempt = before
    return files


def first_failure(files: Sequence[FileEvents], job: LoggedJob) -> Failure | None:
    """The failure that the job did not survive and that came first, of the first srun step that failed."""
    failed = failures_by_step(files, job)
    return failed[0] if failed else None


def failures_by_step(files: Sequence[FileEvents], job: LoggedJob) -> list[Failure]:
    """The first failure of each srun step that failed, in the order of the steps; `srun` starts one after another."""
    failed = []
    for parts in parts_by_step(files):
        if (found := first_event(parts, files, job)) is not None:
            (entry, event), candidates = found
            failure = _failure(entry, event, job, candidates)
            alike = {other.path for other, same in candidates if _is_alike(same, event)}
            if failure.rank is None and failure.local_rank is None and len(alike) > 1:
                total = len({other.path for other in parts if other.seen})
                failure = replace(failure, cause=f"{failure.cause}; {len(alike)} of {total} logs say so")
            failed.append(with_ends(failure, parts, job, event.line.label))
    return failed


def _is_alike(event: Event, other: Event) -> bool:
    return event.signature is other.signature and without_figures(event.line) == without_figures(other.line)


def _is_of_spawn(event: Event) -> bool:
    """Whether torch.multiprocessing numbers the process, and not a launcher that may have started some on each node."""
    return bool(event.groups.get("spawned")) or "multiprocessing.spawn." in event.line.body


_NO_TEXT, _LONGEST_MORE = " without a text", 200
"""What the row of an exception says that has its text in the lines below, and how much of that is told."""
_SAID_BY_RANKS = ("cpp-terminate", "exception-wrapped", "aborted")
"""Reports that no launcher makes: a rank says so of itself, and it may be one that waited in vain."""


def _failure(entry: FileEvents, event: Event, job: LoggedJob, others: Sequence[Said]) -> Failure:
    rank, node, local = place_of(entry, event, job)
    code = event.code
    said = event.ended
    rank = rank if said.rank is None else said.rank
    local = local if said.local is None else said.local
    node = said.host or node
    if rank is None and node is None and not job.nodes and event.line.label is None and _is_of_spawn(event):
        rank = local  # of one node, as far as the logs show
    kind = _KINDS.get(event.role, "cause")
    reports = [item for item in others if item[1].signature.role == "report" and item[1] is not event]
    reports = [item for item in reports if item[1].signature.id not in _SAID_BY_RANKS]
    launcher = ""
    if reports and event.signature.id not in ("hcp-stopped", "hcp-check"):
        # A launcher that named a task first names the one that failed first.
        report_entry, report = min(reports, key=lambda item: (item[1].file, item[1].offset))
        if kind == "effect" and report.code not in ABORTED:
            launcher = filled_cause(report.signature.cause, report.groups)
        elif kind == "cause" and rank is None and report.signature.id == "srun-task":
            rank, other, _ = place_of(report_entry, report, job)
            node = node or other
    if node is None and rank is None and event.line.writer == NOBODY and not entry.ends and len(job.stated) == 1:
        node = next(iter(job.stated))  # of the only process that the job has, as far as its logs show
    if node is not None and node_name(node) is None:
        job.unfit.add("the node of the failing rank")
        node = None
    cause = filled_cause(event.signature.cause, event.groups) + said_text(event.groups.get("at", ""))
    if event.role == "general" and event.more and not event.groups.get("text"):
        cause = f"{cause.replace(_NO_TEXT, '')}: {said_text(event.more)[:_LONGEST_MORE]}"
    explained = meaning(whole(event.groups.get("xid")))
    cause += f": {explained}" if explained else ""
    if code is not None:
        cause += f"; {explain_code(code)}"
    return Failure(
        event.signature,
        kind,
        cause,
        rank,
        node,
        local,
        event.line.when or event.around,
        "line" if event.line.when else "neighbour" if event.around else None,
        said_text(event.line.body),
        entry.path,
        event.number,
        code,
        whole(event.groups.get("victim")) or (said.pid if event.line.pid is None else event.line.pid),
        event.groups.get("rule") or event.signature.rule,
        launcher,
        tuple(sorted(entry.spread.of(event.signature.id, event.line))),
        entry.step,
        task=entry.name.task,
        frames=event.frames,
        more=said_text(event.more),
    )


def with_ends(failure: Failure, files: Iterable[FileEvents], job: LoggedJob, task: int | None = None) -> Failure:
    """The failure with what launchers say about the process that it is of.

    What is known stays; the rest (node, local rank, process id, exit code, time) is taken from them. `task` is the
    number of the srun task that wrote the line, where it is known.
    """
    files = list(files)
    is_rank = are_tasks_ranks(files, job)
    task = failure.rank if is_rank else task
    said = [(entry.path, event.ended) for entry in files for event in entry.ends]
    blocks = [found for _, found in said if found.rank is not None and found.rank == failure.rank]
    if failure.rank is None and failure.pid is not None:
        blocks = [found for _, found in said if found.rank is not None and found.pid == failure.pid]
    workers = [
        found
        for path, found in said
        if found.says == "torchrun" and path == failure.path and found.local is not None
        if found.local == failure.local_rank and (found.rank is None or failure.rank is None)
    ]
    if len({found.rank for found in workers} - {None}) > 1:
        workers = []  # several nodes share this log
    others = {found.rank for _, found in said if found.rank is not None and _failed_itself(found)}
    is_unnamed = failure.kind == "cause" and failure.rank is None and failure.local_rank is None
    if is_unnamed and len(others) == 1:  # nobody else can have raised it
        blocks = [found for _, found in said if found.rank in others]
    if is_unnamed and len(others) > 1 and _raised_alike(failure, files):  # each of them; torchrun saw one first
        own = (event for entry in files if entry.path == failure.path for event in entry.ends)
        blocks = [event.ended for event in own if event.signature.id == "torchrun-root"]
        blocks = blocks if len(blocks) == 1 else []
    if is_unnamed and not others and len({found.local for _, found in said if _failed_itself(found)}) == 1:
        workers = [found for path, found in said if path == failure.path and found.local is not None]
    tasks = [found for _, found in said if task is not None and any(task in some for some in found.tasks)]
    for found in (*blocks, *workers, *(found if is_rank else ProcessEnd(host=found.host) for found in tasks)):
        is_new = failure.when is None and found.when is not None
        failure = replace(
            failure,
            rank=_first(failure.rank, found.rank),
            node=_first(failure.node, found.host),
            local_rank=_first(failure.local_rank, found.local),
            pid=_first(failure.pid, found.pid),
            exit_code=_first(failure.exit_code, found.code),
            when=found.when if is_new else failure.when,
            timed_by="launcher" if is_new else failure.timed_by,
        )
    return failure


def _raised_alike(failure: Failure, files: Iterable[FileEvents]) -> bool:
    """Whether a log has the failure as often as it has ranks that failed by themselves, and no other exception."""
    own = [entry for entry in files if entry.path == failure.path]
    events = (event for entry in own for event in (*entry.pending.values(), *entry.further))
    is_alike = {said_text(event.line.body) for event in events if event.role in RAISED} == {failure.message}
    ranks = {event.ended.rank for entry in own for event in entry.ends if _failed_itself(event.ended)} - {None}
    return is_alike and sum(entry.counts[failure.signature.id] for entry in own) >= len(ranks)


def _failed_itself(end: ProcessEnd) -> bool:
    """Whether a process ended by itself with an error, and by no signal of others."""
    return end.is_own or end.code in ABORTED


def _first(known: _T | None, said: _T | None) -> _T | None:
    return said if known is None else known
