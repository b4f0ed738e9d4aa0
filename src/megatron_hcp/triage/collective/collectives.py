"""A collective that timed out: in which group, which ranks were missing, and how that reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


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
