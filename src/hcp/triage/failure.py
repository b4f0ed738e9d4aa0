"""The first failure of a job: which event came first, what it means, and on which rank and node it happened."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hcp.triage.events import Event, FileEvents
from hcp.triage.line import When, last_time, read_line
from hcp.triage.logged_job import LoggedJob
from hcp.triage.scan import around
from hcp.triage.signatures.row import Signature

_SIGNALS = {
    "Killed": 9,
    "Segmentation fault": 11,
    "Bus error": 7,
    "Aborted": 6,
    "Floating point exception": 8,
    "Out Of Memory": 9,
    "Illegal instruction": 4,
    "Quit": 3,
}
_CODES = {
    1: "an error (read the traceback)",
    2: "wrong arguments",
    9: "killed (SIGKILL): usually memory of the node",
    16: "asked to resume so that a suspicious result can be told from a faulty machine",
    17: "a result failed its validation: suspect the machine",
    126: "the program may not be executed",
    127: "the program was not found",
    134: "aborted (SIGABRT)",
    137: "killed (SIGKILL): usually memory of the node",
    139: "a segmentation fault",
    143: "terminated (SIGTERM)",
}


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
    offset: int
    exit_code: int | None = None
    rule: str = ""


def first_failure(files: Iterable[FileEvents], job: LoggedJob, general: Signature) -> Failure | None:
    """The failure that came first: a cause before an effect, a specific cause before "some exception", by time.

    Between files without times the order of the files decides. `general` names the row for an exception whose
    specific row asked for a context that is not there.
    """
    candidates = []
    for entry in files:
        reports = [event for event in entry.pending if event.signature.role == "report"]
        best: dict[int, Event] = {}
        for event in entry.pending:
            event = _in_context(entry.path, event, general)
            best.setdefault(_level(event, bool(reports) and event is reports[0]), event)
        candidates += [(level, entry, event) for level, event in best.items()]
    if not candidates:
        return None
    times = {
        id(event): event.line.when or last_time(around(entry.path, event.offset)[0]) for _, entry, event in candidates
    }

    def order(item: tuple[int, FileEvents, Event]) -> tuple[int, bool, When, int, int]:
        when = times[id(item[2])]
        return item[0], when is None, when or (0, 0, 0.0), item[2].file, item[2].offset

    _, entry, event = min(candidates, key=order)
    return _failure(entry, event, times[id(event)], job, candidates)


def _level(event: Event, is_first_report: bool) -> int:
    """0 a specific cause, 1 any exception, 2 a launcher's report, 3 an effect.

    The first report of a launcher that a task died of a signal is a cause: no log of the task can say so.
    """
    row = event.signature
    if row.role == "effect":
        return 3
    if row.role == "report":
        code = _exit_code(event)
        return 0 if is_first_report and code is not None and (code < 0 or code in (9, 137, 139)) else 2
    return 1 if row.generic else 0


def _in_context(path: Path, event: Event, general: Signature) -> Event:
    wanted = event.signature.context
    if not wanted or re.search(wanted, around(path, event.offset)[0][-8192:]):
        return event
    exc, _, text = event.line.body.partition(": ")
    return event._replace(signature=general, groups={"exc": exc, "text": text})


def _exit_code(event: Event) -> int | None:
    how = event.groups.get("how", "")
    for words, number in _SIGNALS.items():
        if how.startswith(words):
            return -number
    match = re.search(r"exit code (-?\d+)", how)
    if match:
        return int(match[1])
    return int(event.groups["code"]) if event.groups.get("code") else None


def _failure(
    entry: FileEvents, event: Event, when: When | None, job: LoggedJob, others: list[tuple[int, FileEvents, Event]]
) -> Failure:
    groups = dict(event.groups)
    rank, node, local = _place(entry, event, job)
    code = _exit_code(event)
    if event.signature.id == "torchrun-root":
        root = _root_cause(around(entry.path, event.offset)[1])
        rank, node, local, code = (
            root.get("rank", rank),
            root.get("host", node),
            root.get("local", local),
            root.get("exitcode", code),
        )
    if rank is None:
        # A launcher that named a task first names the one that failed first.
        reports = [item for item in others if item[2].signature.id == "srun-task"]
        if reports and event.signature.role == "cause" and event.signature.id not in ("hcp-stopped", "hcp-check"):
            _, report_entry, report = min(reports, key=lambda item: (item[2].file, item[2].offset))
            rank, other, _ = _place(report_entry, report, job)
            node = node or other
    cause = event.signature.cause
    for name, value in groups.items():
        cause = cause.replace("{" + name + "}", value or "")
    if code is not None:
        cause += f"; {explain_code(code)}"
    return Failure(
        event.signature,
        cause,
        rank,
        node,
        local,
        when,
        event.line.body[:500],
        entry.path,
        event.offset,
        code,
        groups.get("rule") or event.signature.rule,
    )


def explain_code(code: int) -> str:
    """An exit code in words: `-9` and `137` are a signal's."""
    known = _CODES.get(128 - code if code < 0 else code)
    return f"exit code {code}: {known}" if known else f"exit code {code}"


def _place(entry: FileEvents, event: Event, job: LoggedJob) -> tuple[int | None, str | None, int | None]:
    """(rank, node, local rank) of an event, from its line, its file's name, and the job's own lines."""
    line, name = event.line, entry.name
    rank = line.rank if line.rank is not None else name.rank
    local = line.local if line.local is not None else name.local
    node = event.groups.get("host") or line.node or name.node
    if node is None and name.node_index is not None and name.node_index < len(job.nodes):
        node = job.nodes[name.node_index]
    if event.groups.get("local"):
        local = int(event.groups["local"])
    tasks = event.groups.get("tasks")
    label = int(re.split("[,-]", tasks)[0]) if tasks else line.label
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


def _root_cause(text: str) -> dict[str, Any]:
    """The fields of torchrun's block on the first failure that it saw."""
    said: dict[str, Any] = {}
    for raw in text.splitlines()[1:12]:
        body = read_line(raw.encode()).body.strip()
        key, colon, value = body.partition(":")
        key, value = key.strip(), value.strip()
        if not colon:
            continue
        numbers = [int(number) for number in re.findall(r"-?\d+", value)]
        if key == "host":
            said["host"] = value
        elif key == "rank" and numbers:
            said["rank"] = numbers[0]
            if len(numbers) > 1:
                said["local"] = numbers[1]
        elif key == "exitcode" and numbers:
            said["exitcode"] = numbers[0]
    return said
