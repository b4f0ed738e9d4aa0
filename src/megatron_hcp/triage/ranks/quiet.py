"""The only rank that says nothing while all others say that they lost another, or waited in vain: it is the one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from megatron_hcp.triage.events import FileEvents
from megatron_hcp.triage.exit_codes import ProcessEnd
from megatron_hcp.triage.ranks.ended_first import HAPPENED, Said
from megatron_hcp.triage.signatures.exceptions import GONE, HUNG, LEFT_EARLY

_STREAM = re.compile(r"\b(?:std)?(?:out|err)\b|\.log$")
_NUMBER = re.compile(r"\d+")
_PARTS = 3
"""Of a path, so many last parts may number the ranks."""
_FEWEST = 2
_IN_TIME = ("gloo-timeout", "monitored-barrier", "jax-peer", "ft-heartbeat")
"""Signatures of ranks that waited until a time was over, so that the other may still have run."""
_TOLD_OTHERWISE = ("collective-timeout", "watchdog-stuck")
"""Signatures whose lines number what each rank waited for."""
_LOST = frozenset(("effect", "origin"))


def quiet_one(parts: Sequence[FileEvents], first: Said) -> Said | None:
    """The last line of the only rank whose logs don't say that it lost another or waited, where at least two others
    say so; None where `first` is no such word, or the logs' names don't number the ranks.

    A number in the names numbers the ranks where it differs from them by the same everywhere (a node's ranks by 8).
    """
    if first[1].role not in _LOST or first[1].signature.id in _TOLD_OTHERWISE:
        return None
    for files in _series(parts):
        lost = {number: {rank for entry in of for rank in entry.lost} for number, of in files.items()}
        speak = {number for number, of in files.items() if any(entry.pending.keys() & _LOST for entry in of)}
        silent = files.keys() - speak
        offsets = {rank - number for number in speak for rank in lost[number]}
        if len(silent) != 1 or len(speak) < _FEWEST or len(offsets) > 1:
            continue
        number = silent.pop()
        own = files[number]
        ends = {event.ended.rank for entry in parts for event in entry.ends if event.ended.is_own}
        rank = number + (offsets.pop() if offsets else 0)
        if rank in ends or any(entry.pending.keys() & HAPPENED for entry in own):
            return None
        return _at_last(own, rank, first)
    return None


def _series(parts: Sequence[FileEvents]) -> list[dict[int, list[FileEvents]]]:
    """Logs whose names differ in one number alone, by that number; a rank's two streams count as one log."""
    found: dict[str, dict[int, list[FileEvents]]] = {}
    for entry in parts:
        folder, name = entry.path.parents[min(_PARTS, len(entry.path.parents)) - 1], entry.path
        text = _STREAM.sub("", str(name.relative_to(folder)) if folder != Path(".") else str(name))
        for place in _NUMBER.finditer(text):
            shape = f"{folder}/{text[: place.start()]}#{text[place.end() :]}"
            found.setdefault(shape, {}).setdefault(int(place[0][:9]), []).append(entry)
    return [files for files in found.values() if len(files) > _FEWEST]


def _at_last(own: Sequence[FileEvents], rank: int, first: Said) -> Said:
    said = [(entry, entry.last) for entry in own if entry.last is not None]
    if not said:
        entry, event = first
        groups = {**event.groups, "at": f"; rank {rank} alone says nothing of it, and its log is empty"}
        return entry, event._replace(groups=groups, ended=ProcessEnd(None, rank))
    entry, event = max(said, key=lambda item: (item[1].when or (0, 0, 0.0), item[0].steps))
    row = LEFT_EARLY if entry.left is not None else HUNG if first[1].signature.id in _IN_TIME else GONE
    ended = ProcessEnd(None, rank, entry.name.local)
    line = event.line._replace(node=entry.name.node)  # what stands before the text may be the rank's own name
    return entry, event._replace(signature=row, role=row.role, line=line, ended=ended)
