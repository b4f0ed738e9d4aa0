"""Collects what the logs of a job say about failures, and picks the first one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hcp.triage.line import Line, Name, When, last_time, read_line
from hcp.triage.scan import around
from hcp.triage.signatures.table import Signature

_KEPT = 200
_STEPS_THAT_SURVIVE = 3
"""A failure after which the same log reports so many training steps did not end the job."""
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


class Event(NamedTuple):
    """One line that a signature knows."""

    signature: Signature
    groups: dict[str, str]
    line: Line
    file: int
    offset: int


@dataclass
class Job:
    """What the job's own lines (`hcp-job: {…}`) say about it."""

    id: str | None = None
    start: str | None = None
    nodes: tuple[str, ...] = ()
    gpus_per_node: int | None = None
    attempt: int = 0
    node_of_rank: dict[int, str] = field(default_factory=dict)
    groups: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def read(self, text: str) -> None:
        """Takes in one line's JSON; a line that is none is passed over."""
        try:
            said: dict[str, Any] = json.loads(text)
        except ValueError:
            return
        event = said.get("event") if isinstance(said, dict) else None
        if event == "start":
            self.id, self.start = str(said.get("job")), said.get("start")
            self.nodes = tuple(map(str, said.get("nodes") or ()))
            self.gpus_per_node, self.attempt = said.get("gpus_per_node"), int(said.get("attempt") or 0)
        elif event == "rank" and isinstance(said.get("rank"), int):
            self.node_of_rank[said["rank"]] = str(said.get("node"))
        elif event == "group":
            self.groups.append((str(said.get("desc")), tuple(said.get("ranks") or ())))


@dataclass
class FileEvents:
    """The events of one log: pending ones, and how many were survived."""

    path: Path
    name: Name
    pending: list[Event] = field(default_factory=list)
    seen: set[tuple[str, int | None, int | None]] = field(default_factory=set)
    survived: int = 0
    steps: int = 0
    since: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def progress(self, steps: int) -> None:
        self.steps += steps
        if steps and self.pending:
            self.since += steps
            if self.since >= _STEPS_THAT_SURVIVE:
                self.forget()

    def forget(self) -> None:
        """What was pending did not end the job: training went on, or a new attempt began."""
        self.survived += len(self.pending)
        self.pending, self.seen, self.since = [], set(), 0
        self.counts = Counter()

    def add(self, event: Event) -> None:
        self.since = 0
        self.counts[event.signature.id] += 1
        key = (event.signature.id, event.line.rank, event.line.label)
        if key not in self.seen and len(self.pending) < _KEPT:
            self.seen.add(key)
            self.pending.append(event)


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


def first_failure(files: Iterable[FileEvents], job: Job, general: Signature) -> Failure | None:
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
    entry: FileEvents, event: Event, when: When | None, job: Job, others: list[tuple[int, FileEvents, Event]]
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


def _place(entry: FileEvents, event: Event, job: Job) -> tuple[int | None, str | None, int | None]:
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
