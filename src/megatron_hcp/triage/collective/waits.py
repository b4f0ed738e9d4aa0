"""Which collective timed out, in which group, and which ranks were missing: from the lines of NCCL's watchdog."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from megatron_hcp.triage.collective.arrivals import TOKENS as BARRIER_TOKENS
from megatron_hcp.triage.collective.arrivals import Arrivals
from megatron_hcp.triage.collective.collectives import Waited, ranks_text
from megatron_hcp.triage.collective.mismatch import Call, Mismatch, mismatch_of
from megatron_hcp.triage.number import whole

TOKENS = (b"atchdog", b"last enqueued ", b" collective #", *BARRIER_TOKENS)
_MOST = 200_000
"""Of ranks of collectives so many are kept."""
_WORK = re.compile(
    r"\[Rank (?P<place>\d+)\] Watchdog caught collective operation timeout: "
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w{1,40})(?:, SeqNum=(?P<seq2>\d+))?"
)
_SIZES = re.compile(r"NumelIn=\d{1,15}, NumelOut=\d{1,15}")
_ALIKE = frozenset(("ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BROADCAST", "REDUCE"))
"""Operations to which all ranks of a group give tensors of the same size."""
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
    sizes: dict[tuple[int | None, str], dict[int, str]] = field(default_factory=dict)
    """As `waits`, the number of elements that the rank gave and takes."""
    places: dict[str, dict[int, str]] = field(default_factory=dict)
    """group -> rank -> its number in the group"""
    arrivals: Arrivals = field(default_factory=Arrivals)
    size: int = 0

    def read(self, text: str, rank: int | None) -> None:
        """Adds what a line says; `rank` is the global rank that wrote it, if its prefix says so."""
        if self.size >= _MOST:
            return
        self.arrivals.read(text)
        work = _WORK.search(text)
        if work:
            who = whole(work["place"]) if rank is None else rank
            sequence = whole(work["seq"] or work["seq2"])
            members = self.waits.setdefault((sequence, work["op"]), {})
            if who is not None and who not in members:
                timeout = _TIMEOUT.search(text)
                members[who] = whole(timeout[1]) if timeout else None
                sizes = _SIZES.search(text) if work["op"] in _ALIKE else None
                self.sizes.setdefault((sequence, work["op"]), {})[who] = sizes[0] if sizes else ""
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
            self.places.setdefault(name, {})[who] = group["place"]

    def first(self, world: int | None) -> Waited | None:
        """The collective of the lowest sequence that timed out; `world` is the number of ranks, if known."""
        if not self.waits:
            return None
        (sequence, op), members = min(self.waits.items(), key=lambda item: (item[0][0] is None, item[0][0] or 0))
        group, states = self._group_of(sequence)
        if sequence is not None and (found := self._mismatch(sequence, group, states)):
            timeout = next((ms for ms in members.values() if ms), 0) // 1000 or None
            others, said = found.ranks + found.others, found.text()
            return Waited(op, sequence, self.names[group], timeout, others, found.ranks, mismatch=found.kind, said=said)
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

    def _mismatch(self, sequence: int, group: str, states: dict[int, tuple[int, int]]) -> Mismatch | None:
        """What ranks of a group called that wait in it under one number, where they called different things.

        Groups may share a name: two of whose ranks have one number in it are several. A rank may wait in two groups
        under one number, and its call does not say in which.
        """
        ranks = {who for who, (at, _) in states.items() if at == sequence}
        places = [self.places[group][who] for who in ranks]
        others = (other for name, other in self.status.items() if name != group)
        is_twice = any(at == sequence and who in ranks for other in others for who, (at, _) in other.items())
        if len({*places}) < len(places) or is_twice:
            return None
        calls = {
            who: Call(op, sizes, "", "")
            for (number, op), said in self.sizes.items()
            for who, sizes in said.items()
            if number == sequence and who in ranks
        }
        return mismatch_of(self.names[group], sequence, calls) if len(calls) > 1 else None

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
