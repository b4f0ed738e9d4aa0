"""Ranks that called different collectives under one number of their group, by dumps of torch's flight recorder or logs.

torch's own analyser compares the same (`torch/distributed/flight_recorder/components/types.py`, `Op.match`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, NamedTuple

from megatron_hcp.triage.collective.collectives import ranks_text

_MOST_CALLS = 1_000_000
_LONGEST = 200
_OWN_SIZES = ("all_to_all", "_v", "scatter_oop", "coalesced", "send", "recv")
"""In names of calls whose ranks may each give sizes of their own."""


class Call(NamedTuple):
    """A collective as one rank called it; the line of the program that asked for it last."""

    op: str
    sizes: str
    types: str
    where: str


class Mismatch(NamedTuple):
    """Ranks that called another collective than most of their group; none is named where as many called each."""

    kind: Literal["type", "size", "dtype"]
    sequence: int
    group: str
    ranks: tuple[int, ...]
    found: str
    expected: str
    others: tuple[int, ...]
    where: str
    """Where the first of these ranks called it, as `function (file:line)`."""

    def text(self) -> str:
        """The mismatch for a reader."""
        what = {"type": "another collective", "size": "other sizes", "dtype": "another data type"}[self.kind]
        number = f"number {self.sequence}" + (f" of {self.group}" if self.group else "")
        if not self.ranks:
            return f"in collective {number} ranks called {what}: {self.found}, and {self.expected}"
        text = f"in collective {number} {ranks_text(self.ranks)} called {what}: {self.found}"
        return f"{text}; {ranks_text(self.others)}: {self.expected}"


class Calls:
    """The calls of all ranks that were read, by group and number; bounded memory however many dumps there are."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, int], dict[int, Call]] = {}
        self.names: dict[str, str] = {}
        self._size = 0
        self._known: dict[Call, Call] = {}

    def add(self, group: str, name: str, rank: int, entry: dict[str, Any], op: str, where: str) -> None:
        """Adds an entry of a rank's dump."""
        if self._size >= _MOST_CALLS:
            return
        self._size += 1
        given, taken = (as_printed(entry.get(key) or "") for key in ("input_sizes", "output_sizes"))
        sizes = taken if op == "scatter" else given if op == "gather" else f"{given} to {taken}"
        types = as_printed(entry.get("input_dtypes") or "")
        own = any(part in op for part in _OWN_SIZES)
        call = Call(op, "" if own else sizes, "" if own else types, where)
        self.names.setdefault(group, name)
        self.of.setdefault((group, entry["collective_seq_id"]), {})[rank] = self._known.setdefault(call, call)

    def first(self) -> Mismatch | None:
        """The mismatch of the lowest number: what follows it in its group is out of step too."""
        for (group, sequence), calls in sorted(self.of.items(), key=lambda item: (item[0][1], item[0][0])):
            if len(calls) > 1 and (found := mismatch_of(self.names[group], sequence, calls)):
                return found
        return None


def as_printed(value: Any, most: int = _LONGEST) -> str:
    """Sizes or types as Python prints them, up to so many characters: in a few bytes, lists of lists say billions."""
    if isinstance(value, str):
        return value[:most]
    if not isinstance(value, list):
        return str(value)[:most] if isinstance(value, (int, float)) else ""
    text = "["
    for number, item in enumerate(value):
        if len(text) >= most:
            break
        text += (", " if number else "") + (
            repr(item[:most]) if isinstance(item, str) else as_printed(item, max(0, most - len(text)))
        )
    return f"{text}]"[:most]


def mismatch_of(group: str, sequence: int, calls: dict[int, Call]) -> Mismatch | None:
    """What differs in the calls of a group's ranks under one number; None where nothing does."""
    kinds: tuple[tuple[Literal["type", "size", "dtype"], int], ...] = (("type", 0), ("size", 1), ("dtype", 2))
    counts = ((kind, place, Counter(call[place] for call in calls.values() if call[place])) for kind, place in kinds)
    differ = next((found for found in counts if len(found[2]) > 1), None)
    if differ is None:
        return None
    kind, place, said = differ
    (most, count), (second, next_count), *_ = said.most_common(2)
    ranks = tuple(sorted(rank for rank, call in calls.items() if call[place] not in (most, "")))
    is_clear = count > next_count
    others = tuple(sorted(calls.keys() - set(ranks)))
    first = calls[ranks[0]]
    named = {"type": "{}", "size": f"{first.op} of {{}}", "dtype": f"{first.op} of {{}}"}[kind]
    found, expected = named.format(first[place] if is_clear else second), named.format(most)
    if not is_clear:
        found, expected = f"{ranks_text(ranks)} {found}", f"{ranks_text(others)} {expected}"
    return Mismatch(kind, sequence, group, ranks if is_clear else (), found, expected, others, first.where)
