"""The recipes of several releases of Megatron-Bridge as the text that megatron_hcp.launch.recipes reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bridge_recipes import Parameter, Recipe
from bridge_start import Defaults, kept_of, varying

from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.recipes.table import ROWS_A_BLOCK

HEADER = "# Written by lab/recipes/table.py from Megatron-Bridge's sources; `hcp show --recipe NAME` reads it.\n"


class _Pool:
    """Lines, each once, numbered by their first use."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}

    def number(self, line: str) -> int:
        return self.lines.setdefault(line, len(self.lines))


def as_text(releases: Mapping[str, Sequence[Recipe]]) -> str:
    """Sections, an empty line after each: releases, settings, sets of unknown keys, parameters, rows, recipes, and the
    releases of which it is known what their validators read beside the facts, with the keys in which recipes differ.

    A row is a recipe as it is in some release: its model, its settings, its unknown keys, its parameters, as numbers
    of lines in the sections above. A recipe has a row for each release, or `-`. Rows that are alike stand together, and
    each says in which settings it differs from the one before: a third of the size in a wheel.
    """
    settings, unknown, parameters, rows = _Pool(), _Pool(), _Pool(), _Pool()
    recipes: dict[str, list[str]] = {}
    told = {name: found for name, found in releases.items() if any(recipe.values.start for recipe in found)}
    varies: set[str] = set()
    for name, found in told.items():
        defaults = Defaults(name)
        for recipe in found:
            values = {**recipe.values.start, **recipe.values.known}
            varies |= varying(defaults.of(values), values)
    for place, found in enumerate(releases.values()):
        for recipe in found:
            row = rows.number(_row(recipe, settings, unknown, parameters))
            recipes.setdefault(recipe.name, ["-"] * len(releases))[place] = str(row)
    place, lines = differences(list(rows.lines))
    names = [
        " ".join((name, *(number if number == "-" else str(place[int(number)]) for number in numbers)))
        for name, numbers in sorted(recipes.items())
    ]
    differ = " ".join(sorted(varies - index_of("bridge").keys()))
    sections = (releases, settings.lines, unknown.lines, parameters.lines, lines, names, (" ".join(told), differ))
    return HEADER + "\n".join("\n".join(lines) + "\n" for lines in sections)


def differences(rows: Sequence[str]) -> tuple[list[int], list[str]]:
    """Where each row goes, and the rows in that order, with their differences for their settings."""
    cells = [row.split("|") for row in rows]
    own = [set(map(int, row[1].split())) for row in cells]
    left, order = list(range(1, len(rows))), [0]
    while left:
        last = own[order[-1]]
        order.append(min(left, key=lambda row: (len(last ^ own[row]), row)))
        left.remove(order[-1])
    place = [0] * len(rows)
    lines: list[str] = []
    for at, row in enumerate(order):
        place[row] = at
        told = own[row] ^ own[order[at - 1]] if at % ROWS_A_BLOCK else own[row]
        model, _, *others = cells[row]
        lines.append("|".join((model, " ".join(map(str, sorted(told))), *others)))
    return place, lines


def _row(recipe: Recipe, settings: _Pool, unknown: _Pool, parameters: _Pool) -> str:
    known = {**kept_of(recipe.values.start), **recipe.values.known}
    numbers = sorted(settings.number(f"{key} {_json(value)}") for key, value in known.items())
    keys = unknown.number(" ".join(sorted(recipe.values.unknown)) or "-")
    given = [str(parameters.number(_parameter(parameter))) for parameter in recipe.parameters]
    return "|".join((recipe.model or "-", " ".join(map(str, numbers)), str(keys), " ".join(given)))


def _parameter(parameter: Parameter) -> str:
    return f"{parameter.name}|{' '.join(parameter.sets)}|{' '.join(parameter.changes)}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
