"""The first failure of a job: which event came first, what it means, and on which rank and node it happened."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from megatron_hcp.triage.collective.collectives import Waited
from megatron_hcp.triage.events import NAMES_THE_END, ROLES, SENT_FROM_OUTSIDE, Event, FileEvents
from megatron_hcp.triage.exit_codes import ABORTED, ProcessEnd, explain_code
from megatron_hcp.triage.line import When
from megatron_hcp.triage.logged_job import LoggedJob
from megatron_hcp.triage.names import node_name
from megatron_hcp.triage.number import whole
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
_OF_AN_END: frozenset[Role] = frozenset(("end", "report", "echo"))
"""Roles of what is said while a job is ended from outside."""
_AGAIN_AND_AGAIN = 10


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
    waited: Waited | None = None
    """The collective that timed out, and who did not arrive."""

    @property
    def is_from_outside(self) -> bool:
        """Whether the job was stopped, and did not fail itself, as far as its logs show."""
        return self.signature.role == "end" or self.signature.id in SENT_FROM_OUTSIDE


def first_failure(files: Sequence[FileEvents], job: LoggedJob) -> Failure | None:
    """The failure that came first: by role (a cause before an effect before a report), then by time.

    What follows the end of the job (its time limit, its preemption) is no failure. A line that says error and that no
    signature knows is one only where others show that something ended. Between files without times the
    order of the files decides.
    """
    candidates = [(entry, event) for entry in files for event in entry.pending.values()]
    stalls = [item for item in candidates if item[1].role == "stall"]
    candidates = [item for item in candidates if item[1].role != "stall"]
    ends = [event for _, event in candidates if event.role == "end"]
    candidates = [(entry, event) for entry, event in candidates if not any(_follows(event, end) for end in ends)]
    known = [event for _, event in candidates if event.role != "unknown"]
    if _had_its_programs(files) and not all(map(_is_of_a_shell, known)):
        candidates = [item for item in candidates if not _is_of_a_shell(item[1])]
        known = [event for event in known if not _is_of_a_shell(event)]
    if not known:
        return None
    if ends and not any(entry.steps for entry in files) and {event.role for event in known} <= _OF_AN_END:
        for entry, event in stalls:
            if entry.counts[event.signature.id] >= _AGAIN_AND_AGAIN:
                return _failure(entry, event, job, candidates)
    # A line that nothing explains may be the cause of what follows it, not of what stands above it.
    candidates = [
        item for item in candidates if item[1].role != "unknown" or not any(_follows(item[1], event) for event in known)
    ]

    def order(item: tuple[FileEvents, Event]) -> tuple[int, bool, bool, When, int, int]:
        event = item[1]
        is_vague = event.role == "echo" and event.signature.id not in NAMES_THE_END
        return (
            ROLES.index(event.role),
            is_vague,
            event.when is None,
            event.when or (0, 0, 0.0),
            event.file,
            event.offset,
        )

    entry, event = min(candidates, key=order)
    if event.role in _SAID_BY_OTHERS:
        entry, event = _odd_one(files, job, _place(entry, event, job)[0]) or (entry, event)
    return with_ends(_failure(entry, event, job, candidates), files, job, event.line.label)


_NOT_STARTED = frozenset((126, 127))


def _is_of_a_shell(event: Event) -> bool:
    """Whether a shell said that it did not find a program."""
    return event.signature.id == "program-unknown" and bool(event.groups["program"])


def _had_its_programs(files: Sequence[FileEvents]) -> bool:
    """Whether the script went on without a program that its shell did not find: a job that trained had all it needs,
    and so had one whose tasks ended in another way than by that."""
    codes = {event.code for entry in files for event in entry.ends}
    return any(entry.steps for entry in files) or (bool(codes) and not codes & _NOT_STARTED)


_SAID_BY_OTHERS: tuple[Role, ...] = ("origin", "effect", "report", "echo")


def _odd_one(files: Sequence[FileEvents], job: LoggedJob, victim: int | None) -> tuple[FileEvents, Event] | None:
    """Of the rank that ended otherwise than all others: by an exit code of its own, where signals ended these, or
    with the only traceback that is not about a lost peer, where `victim` is another rank, that says that it lost one.
    None where there is no such rank, or more than one."""
    cut = {_place(entry, event, job)[0]: (entry, event) for entry in files for event in entry.cut.values()}
    lost = {rank for entry in files for rank in entry.lost}
    said = [(entry, event) for entry in files for event in entry.ends]
    is_rank = _are_tasks_ranks(files, job)
    own: dict[int, tuple[FileEvents, Event]] = {}
    for entry, event in said:
        if event.ended.is_own and event.ended.rank is not None:
            own.setdefault(event.ended.rank, (entry, event))
        elif event.ended.is_own and is_rank and event.ended.tasks:
            first = event.ended.tasks[0].start
            own.setdefault(first, (entry, event))
            if sum(map(len, event.ended.tasks)) > 1:
                own[first + 1] = entry, event  # there is more than one
    if len(own) == 1 and any(event.ended.is_signalled for _, event in said):
        (rank, (entry, event)), *_ = own.items()
        groups = {**event.groups, "at": "; signals ended the others"}
        return None if rank in lost else cut.get(rank) or (entry, event._replace(groups=groups))
    alone = [item for rank, item in cut.items() if rank is not None and rank not in lost and item[1].groups["at"]]
    return alone[0] if len(alone) == 1 and victim is not None and not {None, victim} & cut.keys() else None


def _are_tasks_ranks(files: Sequence[FileEvents], job: LoggedJob) -> bool:
    """Whether srun started the ranks themselves, and not a launcher of them on each node."""
    if job.start is not None:
        return job.start == "srun"
    return not any(event.ended.says == "torchrun" for entry in files for event in entry.ends)


def with_ends(failure: Failure, files: Iterable[FileEvents], job: LoggedJob, task: int | None = None) -> Failure:
    """The failure with what launchers say about the process that it is of.

    What is known stays; the rest (node, local rank, process id, exit code, time) is taken from them. `task` is the
    number of the srun task that wrote the line, where it is known.
    """
    files = list(files)
    is_rank = _are_tasks_ranks(files, job)
    task = failure.rank if is_rank else task
    said = [(entry.path, event.ended) for entry in files for event in entry.ends]
    blocks = [found for _, found in said if found.rank is not None and found.rank == failure.rank]
    workers = [
        found
        for path, found in said
        if found.says == "torchrun" and path == failure.path and found.local is not None
        if found.local == failure.local_rank and (found.rank is None or failure.rank is None)
    ]
    if len({found.rank for found in workers} - {None}) > 1:
        workers = []  # several nodes share this log
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


def _first(known: _T | None, said: _T | None) -> _T | None:
    return said if known is None else known


_SAID_BY_RANKS = ("cpp-terminate", "exception-wrapped", "aborted")
"""Reports that no launcher makes: a rank says so of itself, and it may be one that waited in vain."""


def _follows(event: Event, end: Event) -> bool:
    if event is end or event.role == "end":
        return False
    if event.file == end.file:
        return event.offset > end.offset
    return event.when is not None and end.when is not None and event.when > end.when


def _failure(entry: FileEvents, event: Event, job: LoggedJob, others: Sequence[tuple[FileEvents, Event]]) -> Failure:
    rank, node, local = _place(entry, event, job)
    code = event.code
    said = event.ended
    rank = rank if said.rank is None else said.rank
    local = local if said.local is None else said.local
    node = said.host or node
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
            rank, other, _ = _place(report_entry, report, job)
            node = node or other
    if node is not None and node_name(node) is None:
        job.unfit.add("the node of the failing rank")
        node = None
    cause = filled_cause(event.signature.cause, event.groups) + said_text(event.groups.get("at", ""))
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
        said.pid if event.line.pid is None else event.line.pid,
        event.groups.get("rule") or event.signature.rule,
        launcher,
    )


def _place(entry: FileEvents, event: Event, job: LoggedJob) -> tuple[int | None, str | None, int | None]:
    """(rank, node, local rank) of an event, from its line, its file's name, and the job's own lines."""
    line, name = event.line, entry.name
    rank = line.rank if line.rank is not None else name.rank
    local = line.local if line.local is not None else name.local
    node = event.groups.get("host") or line.node or name.node
    if node is None and name.node_index is not None and name.node_index < len(job.nodes):
        node = job.nodes[name.node_index]
    if event.groups.get("local"):
        local = whole(event.groups["local"])
    tasks = event.groups.get("tasks")
    label = whole(re.split("[,-]", tasks)[0]) if tasks else line.label
    per_node = job.gpus_per_node
    if label is not None and job.start in ("torchrun", "ft_launcher", "ray"):
        node = job.nodes[label] if label < len(job.nodes) else node
        if rank is None and local is not None and per_node:
            rank = label * per_node + local
    elif rank is None and label is not None and local is None:
        rank = label
    if rank is None and local is not None and per_node and node in job.nodes:
        rank = job.nodes.index(node) * per_node + local
    if node is None and rank is not None:
        node = job.node_of_rank.get(rank)
        if node is None and per_node and job.nodes and rank // per_node < len(job.nodes):
            node = job.nodes[rank // per_node]
    return rank, node, local
