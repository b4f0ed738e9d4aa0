"""The first failure of a job: which event came first, what it means, and on which rank and node it happened."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hcp.core.secrets import without_secrets
from hcp.triage.events import Event, FileEvents
from hcp.triage.exit_codes import exit_code, explain_code
from hcp.triage.line import When
from hcp.triage.logged_job import LoggedJob
from hcp.triage.names import node_name
from hcp.triage.number import whole
from hcp.triage.signatures.row import Signature

_LONGEST = 500
"""Characters of a text from the log that are kept: enough to know the line again."""


@dataclass(frozen=True)
class Failure:
    """The first failure: what, where, and how it was said."""

    signature: Signature
    cause: str
    rank: int | None
    node: str | None
    local_rank: int | None
    when: When | None
    message: str
    path: Path
    line: int
    exit_code: int | None = None
    rule: str = ""


def first_failure(files: Iterable[FileEvents], job: LoggedJob) -> Failure | None:
    """The failure that came first: a cause before an effect, a specific cause before "some exception", by time.

    Between files without times the order of the files decides.
    """
    candidates = [(level, entry, event) for entry in files for level, event in entry.pending.items()]
    if not candidates:
        return None

    def order(item: tuple[int, FileEvents, Event]) -> tuple[int, bool, When, int, int]:
        level, _, event = item
        return level, event.when is None, event.when or (0, 0, 0.0), event.file, event.offset

    _, entry, event = min(candidates, key=order)
    return _failure(entry, event, job, [(entry, event) for _, entry, event in candidates])


def _failure(entry: FileEvents, event: Event, job: LoggedJob, others: list[tuple[FileEvents, Event]]) -> Failure:
    rank, node, local = _place(entry, event, job)
    code = exit_code(event.groups)
    if event.signature.id == "torchrun-root":
        said = event.root
        rank = rank if said.rank is None else said.rank
        local = local if said.local is None else said.local
        node, code = said.host or node, code if said.code is None else said.code
    if rank is None:
        # A launcher that named a task first names the one that failed first.
        reports = [item for item in others if item[1].signature.id == "srun-task"]
        if reports and event.signature.role == "cause" and event.signature.id not in ("hcp-stopped", "hcp-check"):
            report_entry, report = min(reports, key=lambda item: (item[1].file, item[1].offset))
            rank, other, _ = _place(report_entry, report, job)
            node = node or other
    if node is not None and node_name(node) is None:
        job.unfit.add("the node of the failing rank")
        node = None
    cause = _filled(event.signature.cause, event.groups)
    if code is not None:
        cause += f"; {explain_code(code)}"
    return Failure(
        event.signature,
        cause,
        rank,
        node,
        local,
        event.when,
        _said(event.line.body),
        entry.path,
        event.number,
        code,
        event.groups.get("rule") or event.signature.rule,
    )


def _filled(cause: str, groups: Mapping[str, str]) -> str:
    """The cause with the groups of its pattern filled in, in one pass: what a log says is never a place to fill."""
    return re.sub(r"{([a-z]+)}", lambda place: _said(groups.get(place[1], "")), cause)


def _said(text: str) -> str:
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
