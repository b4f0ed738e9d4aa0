"""The first failure of a job: which event came first, what it means, and on which rank and node it happened."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hcp.core.secrets import without_secrets
from hcp.triage.collectives import Waited
from hcp.triage.events import ROLES, Event, FileEvents
from hcp.triage.exit_codes import ABORTED, explain_code
from hcp.triage.line import When
from hcp.triage.logged_job import LoggedJob
from hcp.triage.names import node_name
from hcp.triage.number import whole
from hcp.triage.signatures.row import Role, Signature
from hcp.triage.xids import meaning

_LONGEST = 500
"""Characters of a text from the log that are kept: enough to know the line again."""
Kind = Literal["cause", "effect", "report"]
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
    is_timed: bool
    """Whether the line itself states `when`: otherwise it is the last time that a line above it states."""
    message: str
    path: Path
    line: int
    exit_code: int | None = None
    rule: str = ""
    launcher: str = ""
    """Whom the launcher saw end first, where the failure is an effect."""
    waited: Waited | None = None
    """The collective that timed out, and who did not arrive."""


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

    def order(item: tuple[FileEvents, Event]) -> tuple[int, bool, When, int, int]:
        event = item[1]
        return ROLES.index(event.role), event.when is None, event.when or (0, 0, 0.0), event.file, event.offset

    entry, event = min(candidates, key=order)
    return _failure(entry, event, job, candidates)


def _follows(event: Event, end: Event) -> bool:
    if event is end or event.role == "end":
        return False
    if event.file == end.file:
        return event.offset > end.offset
    return event.when is not None and end.when is not None and event.when > end.when


def _failure(entry: FileEvents, event: Event, job: LoggedJob, others: Sequence[tuple[FileEvents, Event]]) -> Failure:
    rank, node, local = _place(entry, event, job)
    code = event.code
    said = event.root
    rank = rank if said.rank is None else said.rank
    local = local if said.local is None else said.local
    node = said.host or node
    kind = _KINDS.get(event.role, "cause")
    reports = [item for item in others if item[1].signature.role == "report" and item[1] is not event]
    launcher = ""
    if reports and event.signature.id not in ("hcp-stopped", "hcp-check"):
        # A launcher that named a task first names the one that failed first.
        report_entry, report = min(reports, key=lambda item: (item[1].file, item[1].offset))
        if kind == "effect" and report.code not in ABORTED:
            launcher = _filled(report.signature.cause, report.groups)
        elif kind == "cause" and rank is None and report.signature.id == "srun-task":
            rank, other, _ = _place(report_entry, report, job)
            node = node or other
    if node is not None and node_name(node) is None:
        job.unfit.add("the node of the failing rank")
        node = None
    cause = _filled(event.signature.cause, event.groups) + said_text(event.groups.get("at", ""))
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
        event.when,
        event.line.when is not None,
        said_text(event.line.body),
        entry.path,
        event.number,
        code,
        event.groups.get("rule") or event.signature.rule,
        launcher,
    )


def _filled(cause: str, groups: Mapping[str, str]) -> str:
    """The cause with the groups of its pattern filled in, in one pass: what a log says is never a place to fill."""
    filled = re.sub(r"{([a-z0-9]+)}", lambda place: said_text(groups.get(place[1], "")), cause)
    return filled.rstrip().removesuffix(":")


def said_text(text: str) -> str:
    """A text of a log as it is kept for the report: the one place through which such texts pass."""
    return without_secrets(text)[:_LONGEST]


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
