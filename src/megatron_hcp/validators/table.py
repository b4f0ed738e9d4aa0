"""The tables of upstream's validators: one file for each upstream, each unit woven of all releases.

A file begins with a line for each release: its name, how many guards it has, how many of them could not be read, and
for Megatron-Bridge the nearest release of Megatron-LM. The units of the commit of Megatron-LM that Bridge's release
pins are in Megatron-LM's table, as those of a release `megatron-bridge/NAME`: nobody states that one. A line `@UNIT`
heads the text of a unit. In it a line `=MASK` says which releases have the lines below it: bit N is the
Nth release of the file. The lines of one release, in order, are its unit's text. Written by lab/validators.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache, lru_cache

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.validators.guards import guard_of
from megatron_hcp.validators.outcome import Guard
from megatron_hcp.validators.program import StartProgram, Unit, unit_of

FOLDER = os.path.join(os.path.dirname(__file__), "tables")


class Table(NamedTuple):
    """One upstream's: (name, guards, unreadable guards, release of Megatron-LM or "") of each release, oldest first;
    woven texts by unit."""

    releases: tuple[tuple[str, int, int, str], ...]
    units: Mapping[str, str]


_NO_TABLE = Table((), {})


@cache
def table_of(repo: str) -> Table:
    """The table of an upstream; empty if there is none."""
    try:
        with open(os.path.join(FOLDER, f"{repo}.txt"), "rb") as file:
            return _table(file.read().decode())
    except FileNotFoundError:
        return _NO_TABLE


def _table(text: str) -> Table:
    head, *parts = text.rstrip("\n").split("\n@")
    rows = (line.split() for line in head.split("\n")[1:])
    units = (part.partition("\n") for part in parts)
    return Table(
        tuple((row[0], int(row[1]), int(row[2]), row[3] if len(row) > 3 else "") for row in rows),
        {name: lines for name, _, lines in units},
    )


@lru_cache(maxsize=32)
def program_of_release(repo: str, release: str) -> StartProgram | None:
    """The program of a release or branch as the tables have it; None if they do not."""
    table = table_of(repo)
    for place, (name, guards, unreadable, pinned) in enumerate(table.releases):
        if name == release:
            below = program_of_release("megatron-lm", _pinned_by(repo, release)) if pinned else None
            return StartProgram(repo, release, _finder(table, 1 << place, below), "start", guards, unreadable)
    return None


def _pinned_by(repo: str, release: str) -> str:
    return f"{repo}/{release}"


def _finder(table: Table, bit: int, below: StartProgram | None) -> Callable[[str], Unit | None]:

    def find(name: str) -> Unit | None:
        text = table.units.get(name)
        lines = lines_of(text, bit) if text else None
        return unit_of(lines) if lines else below.find(name) if below is not None else None

    return find


def guards_of(repo: str) -> dict[Guard, tuple[str, ...]]:
    """Every guard in the tables of a repository, and the releases that have it, oldest first."""
    found: dict[Guard, tuple[str, ...]] = {}
    table = table_of(repo)
    pins = any(pinned for *_, pinned in table.releases)
    names = dict.fromkeys((*table.units, *(table_of("megatron-lm").units if pins else ())))
    for release in releases_of(repo):
        program = program_of_release(repo, release)
        for unit in filter(None, map(program.find, names) if program else ()):
            for line in unit.guards if unit.kind == "def" else ():
                guard = guard_of(repo, unit, line)
                found[guard] = (*found.get(guard, ()), release)
    return found


def repositories() -> tuple[str, ...]:
    """The upstreams that have a table."""
    return tuple(sorted(name.removesuffix(".txt") for name in os.listdir(FOLDER)))


def releases_of(repo: str) -> tuple[str, ...]:
    """The releases and branches in the tables of a repository, oldest first."""
    return tuple(name for name, *_ in table_of(repo).releases if "/" not in name)


def lines_of(text: str, bit: int) -> list[str]:
    """The lines of a woven text that a release has."""
    found = "\n".join([lines for mask, lines in _parts(text) if mask & bit])
    return found.split("\n") if found else []


@cache
def _parts(text: str) -> tuple[tuple[int, str], ...]:
    """(mask of releases, lines), in order."""
    parts = (part.partition("\n") for part in text[1:].split("\n="))
    return tuple([(int(mask, 16), lines) for mask, _, lines in parts])
