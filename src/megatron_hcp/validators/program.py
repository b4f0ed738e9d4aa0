"""Upstream's validators as one intermediate program: the functions and classes that its start-up runs.

A unit has one statement on each line, indented by one space for each block that it is in:

    if EXPRESSION             and, in the same column, `else`
    for TARGET in EXPRESSION
    check EXPRESSION<tab>MESSAGE      an assert: upstream goes on if the expression holds
    stop EXPRESSION<tab>MESSAGE       a raise: the expression is what would have kept upstream from it; only shown
    TARGET = EXPRESSION       TARGET is a name, a field (`args.x`), an item (`kw_args['x']`), or several of them
    del TARGET
    return EXPRESSION
    do EXPRESSION             for what it changes
    forget TARGET, ...        what a statement may have changed that could not be read
    break, continue

A guard whose condition upstream writes in other words ends in a tab and the name that upstream's words give it.

A class has `TARGET = EXPRESSION` for each field with its default. Expressions: see `expression.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from functools import cache, lru_cache
from typing import Any, TypeVar

from megatron_hcp.ground.record import NamedTuple

T = TypeVar("T")

_FIELD = re.compile(r"\b(?:args|self)\.(\w+)")


REQUIRED = "REQUIRED"
"""The default of a field of pydantic's that has none."""
UNREAD_BASE = "..."
"""A base of a class whose fields are not known."""


class Unit(NamedTuple):
    """A function or a class of upstream's. `head` has its parameters with defaults, or its bases; `path` its file."""

    name: str
    kind: str
    head: tuple[str, ...]
    path: str
    lines: tuple[str, ...]
    quiet: frozenset[int] = frozenset()
    """The places of conditions that come to nothing while the fields they read have upstream's defaults."""

    @property
    def guards(self) -> list[str]:
        return [line.lstrip() for line in self.lines if line.lstrip().startswith(("check ", "stop "))]


class StartProgram(NamedTuple):
    """The units of one revision of one upstream, found by name; `start` is the unit that begins."""

    repo: str
    release: str
    find: Callable[[str], Unit | None]
    start: str
    guards: int
    unreadable: int

    @property
    def kept(self) -> dict[str, dict[Any, Any]]:
        """What evaluations of the program work out once: units, defaults."""
        return _kept(self.find)

    def known(self, table: str, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives for a key of a table of `kept`, made once: each trial of a fix asks again."""
        kept = self.kept.setdefault(table, {})
        if key not in kept:
            kept[key] = make()
        found: T = kept[key]
        return found


@lru_cache(maxsize=64)
def _kept(find: Callable[[str], Unit | None]) -> dict[str, dict[Any, Any]]:
    return {}


def shape_of(lines: Sequence[str]) -> tuple[list[int], list[int]]:
    """(the depth of each line, the place after the block that it heads)."""
    depths = [0 if line[:1] != " " else len(line) - len(line.lstrip(" ")) for line in lines]
    ends = [0] * len(lines)
    heads: list[int] = []
    for place, depth in enumerate(depths):
        while heads and depths[heads[-1]] >= depth:
            ends[heads.pop()] = place
        heads.append(place)
    for place in heads:
        ends[place] = len(lines)
    return depths, ends


@cache
def fields_in(line: str) -> list[str]:
    """The fields of `args` and `self` that a statement reads."""
    return _FIELD.findall(line.partition("\t")[0])


@cache
def condition_of(line: str) -> tuple[str, str]:
    """(condition, message) of a guard's line."""
    condition, message, *_ = f"{line.lstrip().partition(' ')[2]}\t".split("\t")
    return condition, message


def is_readable(line: str) -> bool:
    """Whether a guard's condition was read whole."""
    return "..." not in condition_of(line)[0]


def as_lines(unit: Unit) -> tuple[str, ...]:
    """A unit as a table holds it: its kind, name, file and head; its statements, with `?` before quiet ones."""
    lines = (f"?{line}" if place in unit.quiet else line for place, line in enumerate(unit.lines))
    return ("\t".join((f"{unit.kind} {unit.name} @ {unit.path}", *unit.head)), *lines)


def unit_of(lines: Sequence[str]) -> Unit:
    """A unit from its lines."""
    first, *head = lines[0].split("\t")
    kind, name, _, path = first.split(" ")
    statements = list(lines[1:])
    quiet = [place for place, line in enumerate(statements) if line[:1] == "?"]
    for place in quiet:
        statements[place] = statements[place][1:]
    return Unit(name, kind, tuple(head), path, tuple(statements), frozenset(quiet))
