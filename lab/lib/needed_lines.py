"""Leaves out of upstream's programs what nothing that they judge depends on, followed through fields of objects.

The reader leaves out local names that no statement of the same function reads. Here a statement that gives a field a
value is left out too, where nothing that is needed reads a field of that name, whosever it is: in no release, and in
none of the programs that run on the same settings. A name in a text counts as read (`getattr(args, 'x')`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache
from typing import NamedTuple, TypeVar

from megatron_hcp.validators.program import Unit
from megatron_hcp.validators.reader.prune import CHANGES, around_each, assigned_names, is_assignment

Place = TypeVar("Place")
_WORD = re.compile(r"[A-Za-z_]\w*")
_FIELD = re.compile(r"([A-Za-z_][\w.]*)\.(\w+)\Z")
_STAYS = ("check", "stop", "return", "del")
_MADE = (".__init__", ".__post_init__")


class _Line(NamedTuple):
    """What a statement does: `names` are the local names that it gives a value, `field` the field; `read` are the words
    of what it reads, fields' names and those in texts included."""

    word: str
    names: tuple[str, ...]
    field: str
    read: frozenset[str]


@cache
def _line(line: str) -> _Line:
    text = line.lstrip().partition("\t")[0]
    word = text.partition(" ")[0]
    names = tuple(assigned_names(line))
    target, equals, value = text.removeprefix("forget ").partition(" = ")
    sets = bool(equals) and is_assignment(text)
    field = _FIELD.match(target) if sets or word == "forget" else None
    if word == "for":
        value = text.partition(" in ")[2]
    elif names and not equals:
        value = ""
    elif field is not None:
        value = f"{field[1]} {value}"
    elif not (sets and names):
        value = text
    return _Line(word, names, field[2] if field else "", frozenset(_WORD.findall(value)))


def needed_lines(
    programs: Mapping[Place, Mapping[str, Unit]], start: str, read: Iterable[str] = (), named: Container[str] = ()
) -> dict[Place, dict[str, Unit]]:
    """The programs without what decides nothing: all guards and all classes stay.

    `read` are further words that count as read; the functions of the files in `named` are called by names in settings.
    """
    fields = set(read)
    parts = [_Part(units, start, named) for units in programs.values()]
    while sum([part.grown(fields) for part in parts]):
        pass
    return {name: part.kept(fields) for name, part in zip(programs, parts)}


class _Part:
    """One program: which of its statements are needed. That only grows, as do the fields that are read."""

    def __init__(self, units: Mapping[str, Unit], start: str, named: Container[str]) -> None:
        self._units = {name: unit for name, unit in units.items() if unit.kind in ("class", "def")}
        self._others = {name: unit for name, unit in units.items() if name not in self._units}  # options, settings
        reached = self._reached([start], lambda unit: unit.lines)
        by_settings = (name for name, unit in self._units.items() if unit.kind == "class" or unit.path in named)
        self._starts = [start, *by_settings, *(name for name in self._units if name not in reached)]
        self._live: dict[str, set[int]] = {}
        self._around = {name: around_each(unit.lines) for name, unit in self._units.items()}
        classes = [name for name, unit in self._units.items() if unit.kind == "class"]
        made = {line.rpartition(".")[2].rstrip("'") for unit in self._others.values() for line in unit.lines}
        self._by_place = {name for name in classes if self._is_called_by_place(name)}
        self._named = self._reached_bases(made.intersection(classes)) - self._by_place

    def grown(self, fields: set[str]) -> bool:
        """Takes up what is needed by what is known; whether anything was new."""
        before = len(fields), sum(map(len, self._live.values())), len(self._live)
        acting = self._acting(fields)
        for name in self._reached(self._starts, lambda unit: self._lines_of(unit, fields)):
            unit = self._units[name]
            if unit.kind == "def":
                self._follow(unit, acting, fields)
            fields.update(*(_line(line).read for line in self._lines_of(unit, fields)))
            fields.update(*map(_WORD.findall, unit.head if unit.kind == "def" else ()))
            self._live.setdefault(name, set())
        return before != (len(fields), sum(map(len, self._live.values())), len(self._live))

    def kept(self, fields: set[str]) -> dict[str, Unit]:
        units = ((name, unit) for name, unit in self._units.items() if name in self._live)
        return {name: unit._replace(lines=tuple(self._lines_of(unit, fields))) for name, unit in units} | self._others

    def _lines_of(self, unit: Unit, fields: set[str]) -> list[str]:
        if unit.kind == "class":
            kept = [line for line in unit.lines if unit.name in self._by_place or line.partition(" = ")[0] in fields]
            rest = {line.partition(" = ")[0] for line in unit.lines} if unit.name in self._named else set()
            return [*kept, *(f"{name} = ..." for name in sorted(rest - fields))]
        live, around = self._live.get(unit.name, set()), self._around[unit.name]
        inside = {head for place in live if _line(unit.lines[place]).word != "for" for head in around[place]}
        return [
            unit.lines[place] for place in sorted(live) if place in inside or _line(unit.lines[place]).word != "for"
        ]

    def _follow(self, unit: Unit, acting: set[str], fields: set[str]) -> None:
        live, around = self._live.setdefault(unit.name, set()), self._around[unit.name]
        lines = [_line(line) for line in unit.lines]
        names = set().union(*(lines[place].read for place in live))
        count = -1
        while count != len(live):
            count = len(live)
            for place, line in enumerate(lines):
                if place not in live and self._is_needed(unit, place, line, acting, fields, names):
                    added = {place, *around[place]}
                    live |= added
                    names.update(*(lines[one].read for one in added))

    def _is_needed(
        self, unit: Unit, place: int, line: _Line, acting: set[str], fields: set[str], names: set[str]
    ) -> bool:
        if line.word in _STAYS:
            return True
        if line.word in ("if", "for", "else"):
            return not (acting.isdisjoint(line.read) and names.isdisjoint(line.names))
        if line.word in ("break", "continue"):
            around = self._around[unit.name][place]
            return bool(around) and around[0] in self._live[unit.name]
        if not acting.isdisjoint(line.read) or any(change in unit.lines[place] for change in CHANGES):
            return True
        if line.field:
            return line.field in fields
        return not names.isdisjoint(line.names) if line.names else line.word != "do"

    def _acting(self, fields: set[str]) -> set[str]:
        """The names of units, and the last parts of methods' names, that have guards, change what is read, or use one
        that does."""
        acting = {name for name, unit in self._units.items() if unit.kind == "def" and _acts(unit, fields)}
        uses = {
            name: frozenset().union(*(_line(line).read for line in unit.lines)) for name, unit in self._units.items()
        }
        while True:
            known = {part for name in acting for part in (name.rpartition(".")[2], name)}
            made = {name.split(".")[-2] for name in acting if name.endswith(_MADE)}
            more = {name for name in self._units if name not in acting and (uses[name] & known or name in made)}
            if not more:
                return known - {"__init__", "__post_init__"} | made
            acting |= more

    def _reached(self, starts: Iterable[str], lines_of: Callable[[Unit], Iterable[str]]) -> set[str]:
        """The units that are needed from some on, by the words of these lines."""
        found: set[str] = set()
        waiting = [*starts]
        while waiting:
            name = waiting.pop()
            if name in found or name not in self._units:
                continue
            found.add(name)
            unit = self._units[name]
            words = set().union(*(_line(line).read for line in lines_of(unit)), *map(_WORD.findall, unit.head))
            waiting += [other for other in self._units if other not in found and other.rpartition(".")[2] in words]
            if unit.kind == "class":
                waiting += [other for other in self._units if other.startswith(tuple(name + one for one in _MADE))]
        return found

    def _reached_bases(self, names: set[str]) -> set[str]:
        """Classes of which settings make objects, with their bases: a key that they all lack is refused."""
        bases = {base for name in names for base in self._units[name].head if base in self._units} - names
        return self._reached_bases(names | bases) if bases else names

    def _is_called_by_place(self, name: str) -> bool:
        """Whether objects of a class are made with arguments by position: then each of its fields has its place."""
        call = re.compile(rf"\b{re.escape(name)}\((?!\)|\*\*|\w+=)")
        return any(call.search(line) for unit in self._units.values() for line in unit.lines)


def _acts(unit: Unit, fields: set[str]) -> bool:
    if unit.guards or any(change in line for line in unit.lines for change in CHANGES):
        return True
    lines = map(_line, unit.lines)
    return any(line.field in fields if line.field else not line.names and line.word not in _SILENT for line in lines)


_SILENT = (*_STAYS, "if", "for", "else", "break", "continue", "do")
"""Statements that change nothing themselves."""
