"""The recipes of several releases of Megatron-Bridge as the text that hcp.launch.recipes reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from bridge_recipes import Parameter, Recipe

HEADER = "# Written by bench/recipes/table.py from Megatron-Bridge's sources; `hcp show --recipe NAME` reads it.\n"


class _Pool:
    """Lines, each once, by the number of their first use."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}

    def number(self, line: str) -> int:
        return self.lines.setdefault(line, len(self.lines))


def as_text(releases: Mapping[str, Iterable[Recipe]]) -> str:
    """Sections, an empty line after each: releases, settings, sets of unknown keys, parameters, rows, recipes.

    A row is a recipe as it is in some release: its model, its settings, its unknown keys, its parameters, as numbers
    of lines in the sections above. A recipe has a row for each release, or `-`.
    """
    settings, unknown, parameters, rows = _Pool(), _Pool(), _Pool(), _Pool()
    recipes: dict[str, list[str]] = {}
    for place, found in enumerate(releases.values()):
        for recipe in found:
            row = rows.number(_row(recipe, settings, unknown, parameters))
            recipes.setdefault(recipe.name, ["-"] * len(releases))[place] = str(row)
    names = [f"{name} {' '.join(numbers)}" for name, numbers in sorted(recipes.items())]
    sections = (releases, settings.lines, unknown.lines, parameters.lines, rows.lines, names)
    return HEADER + "\n".join("\n".join(lines) + "\n" for lines in sections)


def _row(recipe: Recipe, settings: _Pool, unknown: _Pool, parameters: _Pool) -> str:
    numbers = sorted(settings.number(f"{key} {_json(value)}") for key, value in recipe.values.known.items())
    keys = unknown.number(" ".join(sorted(recipe.values.unknown)) or "-")
    given = [str(parameters.number(_parameter(parameter))) for parameter in recipe.parameters]
    return "|".join((recipe.model or "-", " ".join(map(str, numbers)), str(keys), " ".join(given)))


def _parameter(parameter: Parameter) -> str:
    return f"{parameter.name}|{' '.join(parameter.sets)}|{' '.join(parameter.changes)}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
