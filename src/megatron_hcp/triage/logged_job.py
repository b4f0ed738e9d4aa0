"""What a job says about itself in its log: lines of JSON that the scripts of `hcp render` write.

Anything may write such a line, so every field is checked before it is used. What does not fit counts as absent, and
is remembered in `unfit`, so that the report can say it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from megatron_hcp.triage.names import job_id, node_name

_STATUSES = ("completed", "ended-early", "undecided", "preempted", "failed", "stopped", "terminated")
_STARTS = ("srun", "torchrun", "ft_launcher", "ray", "verify")
_MOST_RANKS = 200_000
"""Of ranks and of members of groups so many are kept: memory stays bounded however long the log is."""
_LEVEL = re.compile(r"HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L[0-9]")


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 10**9 else None


def _size(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 10**4 else None


def _start(value: object) -> str | None:
    return value if isinstance(value, str) and value in _STARTS else None


def _status(value: object) -> str | None:
    return value if isinstance(value, str) and value in _STATUSES else None


def _level(value: object) -> str | None:
    return value if isinstance(value, str) and _LEVEL.fullmatch(value) else None


def _nodes(value: object) -> tuple[str, ...] | None:
    fits = isinstance(value, list) and len(value) <= _MOST_RANKS and all(map(node_name, value))
    return tuple(value) if fits and isinstance(value, list) else None


def _ranks(value: object) -> tuple[int, ...] | None:
    fits = isinstance(value, list) and 0 < len(value) <= _MOST_RANKS and all(_count(rank) is not None for rank in value)
    return tuple(value) if fits and isinstance(value, list) and len(set(value)) == len(value) else None


_RECORDS: dict[str, dict[str, Callable[[object], Any]]] = {
    "start": {"job": job_id, "start": _start, "nodes": _nodes, "gpus_per_node": _size, "attempt": _count},
    "rank": {"rank": _count, "node": node_name},
    "group": {"desc": _level, "ranks": _ranks},
    "end": {"status": _status, "attempt": _count},
}
"""Event -> its fields, each with what reads it: the value, or None where it does not fit."""


@dataclass
class LoggedJob:
    """What the job's own lines (`hcp-job: {…}`) say about it."""

    id: str | None = None
    start: str | None = None
    nodes: tuple[str, ...] = ()
    gpus_per_node: int | None = None
    attempt: int = 0
    node_of_rank: dict[int, str] = field(default_factory=dict)
    groups: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    starts: dict[int, tuple[str | None, tuple[str, ...], int | None]] = field(default_factory=dict)
    """attempt -> how it was started, its nodes, and their GPUs each"""
    ends: dict[int, str] = field(default_factory=dict)
    """attempt -> the status that the job gave itself at its end"""
    stated: set[str] = field(default_factory=set)
    """Names of nodes that the first lines of its logs state, one a line."""
    unfit: set[str] = field(default_factory=set)
    """What these lines stated and could not be meant, in words."""
    _members: int = 0

    def read(self, text: str) -> str | None:
        """Adds what one line's JSON says, and gives its event; a line that does not begin with a record is skipped."""
        try:
            said = _DECODER.raw_decode(text)[0]
        except (ValueError, RecursionError):
            return None
        event = said.get("event") if isinstance(said, dict) else None
        if not isinstance(event, str) or event not in _RECORDS:
            return None
        record = {name: self._field(event, name, reader, said.get(name)) for name, reader in _RECORDS[event].items()}
        if event == "start":
            self.id, self.start, self.gpus_per_node = record["job"], record["start"], record["gpus_per_node"]
            self.nodes, self.attempt = record["nodes"] or (), record["attempt"] or 0
            self.starts[self.attempt] = self.start, self.nodes, self.gpus_per_node
        elif event == "end":
            if record["status"] is not None:
                self.ends[record["attempt"] or 0] = record["status"]
        elif None in record.values():
            return None
        elif event == "rank":
            if len(self.node_of_rank) < _MOST_RANKS:
                self.node_of_rank[record["rank"]] = record["node"]
        elif self._members < _MOST_RANKS:
            self._members += len(record["ranks"])
            self.groups.append((record["desc"], record["ranks"]))
        else:
            self.unfit.add("more members of groups than are compared")
        return event

    def of_attempt(self, number: int) -> LoggedJob:
        """The job as it was in an attempt: a requeued job may have other nodes."""
        if number == self.attempt or number not in self.starts:
            return self
        start, nodes, gpus_per_node = self.starts[number]
        return replace(self, start=start, nodes=nodes, gpus_per_node=gpus_per_node, node_of_rank={})

    def world(self) -> int | None:
        """The number of ranks, where the job says its nodes and their GPUs."""
        return len(self.nodes) * self.gpus_per_node if self.nodes and self.gpus_per_node else None

    def _field(self, event: str, name: str, reader: Callable[[object], Any], value: object) -> Any:
        read = None if value is None else reader(value)
        if read is None and value is not None:
            self.unfit.add(f"{name} of a line {event!r}")
        return read
