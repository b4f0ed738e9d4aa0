"""Which collective timed out, in which group, and which ranks were missing: from the lines of NCCL's watchdog."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from megatron_hcp.triage.number import whole

TOKENS = (b"atchdog", b"last enqueued ", b" collective #")
_MOST = 200_000
"""Of ranks of collectives so many are kept."""
_WORK = re.compile(
    r"\[Rank (?P<place>\d+)\] Watchdog caught collective operation timeout: "
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w{1,40})(?:, SeqNum=(?P<seq2>\d+))?"
)
_TIMEOUT = re.compile(r"Timeout\(ms\)=(\d{1,9})")
_GROUP = re.compile(
    r"\[PG (?:ID \d{1,9} PG GUID (?P<guid>[^\s(\]]{1,80})(?:\((?P<desc>\w{1,80})\))?|(?P<old>\d{1,9})) "
    r"Rank (?P<place>\d{1,9})\]"
)
_AT = re.compile(r"(?:at work(?: sequence id)?|NCCL work): (\d{1,9})")
_LAGGING = re.compile(
    r"\[(?P<ranks>\d{1,9}(?:, \d{1,9}){0,4000})\] (?:finished collective #\d{1,9}, but didn't join|"
    r"joined but didn't finish) collective #\d"
)
"""torch's report with TORCH_NCCL_DESYNC_DEBUG: retrieveDesyncReport, TraceUtils.h."""
_LAST = re.compile(r"last enqueued (?:NCCL )?work: (\d{1,9})")


class Waited(NamedTuple):
    """A collective that timed out."""

    op: str
    sequence: int | None
    group: str | None
    """The name that the program gave to the process group."""
    seconds: int | None
    arrived: tuple[int, ...]
    """Ranks that waited in it."""
    missing: tuple[int, ...]
    """Ranks that never reached it, as far as it can be known; empty: the logs don't show which."""
    source: str = "log"
    """`log` or `flight-recorder`."""
    at: str = ""
    """Where the first of the missing ranks was last seen, or called something else; or that it left no dump. Where
    none is known to be missing: which ranks waited in a later collective instead."""
    mismatch: str = ""
    """`type`, `size` or `dtype`, where ranks called different collectives: `missing` are those that differ."""
    said: str = ""
    """The mismatch for a reader."""


def collective_text(waited: Waited, end: str) -> str:
    """A collective for a reader: its operation and group, how it ended, who waited in it and who never reached it."""
    if waited.said:
        return waited.said
    number = "" if waited.sequence is None else f" (number {waited.sequence})"
    text = f"the collective {waited.op}{number}{f' of {waited.group}' if waited.group else ''} {end}"
    text += f": {ranks_text(waited.arrived)} waited in it" if waited.arrived else ""
    return text + (f"; {ranks_text(waited.missing)} never reached it" if waited.missing else "")


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks for a reader: the first few, and how many there are.

    >>> ranks_text((3,)), ranks_text((4, 12)), ranks_text(range(40))
    ('rank 3', 'ranks 4 and 12', 'ranks 0, 1, 2, 3, 4, 5, 6, 7 and 32 more')
    """
    *shown, last = [str(rank) for rank in ranks[:8]] + ([f"{len(ranks) - 8} more"] if len(ranks) > 8 else [])
    return f"rank{'' if len(ranks) == 1 else 's'} " + (f"{', '.join(shown)} and {last}" if shown else last)


@dataclass
class CollectiveWaits:
    """What was read so far; bounded memory however long the logs are."""

    waits: dict[tuple[int | None, str], dict[int, int | None]] = field(default_factory=dict)
    """(sequence, operation) -> rank -> time-out in milliseconds"""
    status: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """group -> rank -> (the sequence that timed out, the last one that the rank enqueued)"""
    names: dict[str, str] = field(default_factory=dict)
    lagging: set[int] = field(default_factory=set)
    """Ranks that torch's own report names."""
    size: int = 0

    def read(self, text: str, rank: int | None) -> None:
        """Adds what a line says; `rank` is the global rank that wrote it, if its prefix says so."""
        if self.size >= _MOST:
            return
        work = _WORK.search(text)
        if work:
            who = whole(work["place"]) if rank is None else rank
            members = self.waits.setdefault((whole(work["seq"] or work["seq2"]), work["op"]), {})
            if who is not None and who not in members:
                timeout = _TIMEOUT.search(text)
                members[who] = whole(timeout[1]) if timeout else None
                self.size += 1
        if late := _LAGGING.search(text):
            self.lagging |= {who for place in late["ranks"].split(", ") if (who := whole(place)) is not None}
        group, at, last = _GROUP.search(text), _AT.search(text), _LAST.search(text)
        if group and at and last:
            self._add_status(group, whole(at[1]), whole(last[1]), rank)

    def _add_status(self, group: re.Match[str], at: int | None, last: int | None, rank: int | None) -> None:
        who = whole(group["place"]) if rank is None else rank
        name = group["guid"] or group["old"]
        self.names.setdefault(name, group["desc"] or "")
        if who is not None and at is not None and last is not None:
            self.size += 1
            self.status.setdefault(name, {})[who] = (at, last)

    def first(self, world: int | None) -> Waited | None:
        """The collective of the lowest sequence that timed out; `world` is the number of ranks, if known."""
        if not self.waits:
            return None
        (sequence, op), members = min(self.waits.items(), key=lambda item: (item[0][0] is None, item[0][0] or 0))
        group, states = self._group_of(sequence)
        arrived = sorted({*members, *(who for who, (at, last) in states.items() if at == sequence and last >= at)})
        missing: Iterable[int] = (
            who for who, (_, last) in states.items() if sequence is not None and last < sequence and who not in members
        )
        name = self.names.get(group) or None
        if name == "default_pg" and world is not None and len(arrived) < world <= _MOST:
            missing = set(range(world)) - set(arrived)
        missing = set(missing) or self.lagging - set(arrived)
        timeouts = [ms for ms in members.values() if ms]
        return Waited(
            op,
            sequence,
            name,
            timeouts[0] // 1000 if timeouts else None,
            tuple(arrived),
            tuple(sorted(missing)),
            at="" if missing else self._beyond(sequence, {*arrived}),
        )

    def _beyond(self, sequence: int | None, arrived: set[int]) -> str:
        """The next collective in which ranks timed out that did not wait in this one: they are out of step."""
        later = (
            (number, op, ranks.keys() - arrived)
            for (number, op), ranks in self.waits.items()
            if sequence is not None and number is not None and number > sequence
        )
        number, op, ranks = min((item for item in later if item[2]), default=(0, "", set()), key=lambda item: item[0])
        return f"{ranks_text(sorted(ranks))} waited in {op} {number} instead" if ranks else ""

    def _group_of(self, sequence: int | None) -> tuple[str, dict[int, tuple[int, int]]]:
        """The group in which this sequence timed out, and its ranks' states."""
        for group, states in self.status.items():
            if any(at == sequence for at, _ in states.values()):
                return group, states
        return "", {}
