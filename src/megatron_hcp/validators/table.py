"""The tables of upstream's validators: one file for each unit, woven of all releases.

A line `=MASK` says which releases have the lines below it: bit N is the Nth release of `releases.txt`. The lines of one
release, in order, are its unit's text. Written by lab/validators.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache

from megatron_hcp.validators.guards import slug_of
from megatron_hcp.validators.outcome import Guard
from megatron_hcp.validators.program import StartProgram, Unit, condition_of, unit_of

FOLDER = os.path.join(os.path.dirname(__file__), "tables")
RELEASES = "releases.txt"
"""For each release a line: its name, how many guards it has, and how many of them could not be read."""
_MOST_LINES = 20_000


@lru_cache(maxsize=32)
def program_of_release(repo: str, release: str) -> StartProgram | None:
    """The program of a release or branch as the tables have it; None if they do not."""
    try:
        rows = [line.split() for line in _text(repo, RELEASES).splitlines() if not line.startswith("#")]
    except FileNotFoundError:
        return None
    place = next((place for place, row in enumerate(rows) if row[0] == release), None)
    if place is None:
        return None

    names = frozenset(os.listdir(os.path.join(FOLDER, repo)))

    def find(name: str) -> Unit | None:
        file = f"{name}.txt"
        lines = lines_of(_text(repo, file), 1 << place) if file in names else None
        return unit_of(lines) if lines else None

    return StartProgram(repo, release, find, "start", int(rows[place][1]), int(rows[place][2]))


def guards_of(repo: str) -> dict[Guard, tuple[str, ...]]:
    """Every guard in the tables of a repository, and the releases that have it, oldest first."""
    found: dict[Guard, tuple[str, ...]] = {}
    names = sorted(name for name in os.listdir(os.path.join(FOLDER, repo)) if name != RELEASES)
    for release in releases_of(repo):
        program = program_of_release(repo, release)
        for unit in filter(None, (program.find(name.removesuffix(".txt")) for name in names) if program else ()):
            for line in unit.guards if unit.kind == "def" else ():
                condition, message = condition_of(line)
                guard = Guard(repo, unit.path, unit.name, slug_of(unit.name, condition), condition, message)
                found[guard] = (*found.get(guard, ()), release)
    return found


def releases_of(repo: str) -> tuple[str, ...]:
    """The releases and branches in the tables of a repository, oldest first."""
    return tuple(line.split()[0] for line in _text(repo, RELEASES).splitlines() if not line.startswith("#"))


def lines_of(text: str, bit: int) -> list[str]:
    """The lines of a woven text that a release has."""
    found: list[str] = []
    for part in text[1:].split("\n="):
        mask, _, lines = part.partition("\n")
        if int(mask, 16) & bit:
            found += lines.split("\n")
    return found


def woven(texts: Sequence[Iterable[str]]) -> str:
    """The woven text of a unit's lines in each release, in their order; empty lines for a release that lacks it."""
    from difflib import SequenceMatcher

    rows: list[tuple[str, int]] = []
    for place, text in enumerate(texts):
        lines, bit = list(text)[:_MOST_LINES], 1 << place
        merged: list[tuple[str, int]] = []
        for kind, a, b, c, d in SequenceMatcher(None, [line for line, _ in rows], lines, autojunk=False).get_opcodes():
            if kind == "equal":
                merged += [(line, mask | bit) for line, mask in rows[a:b]]
            else:
                merged += rows[a:b]
                merged += [(line, bit) for line in lines[c:d]]
        rows = merged
    parts: list[str] = []
    last = 0
    for line, mask in rows:
        if mask != last:
            parts.append(f"={mask:x}")
            last = mask
        parts.append(line)
    return "\n".join(parts) + "\n"


def _text(repo: str, name: str) -> str:
    with open(os.path.join(FOLDER, repo, name), encoding="utf-8") as file:
        return file.read().rstrip("\n")
