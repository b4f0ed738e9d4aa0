"""Values to draw for the settings that upstream's guards read, from a revision's table."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from megatron_hcp.validators.given.options import TEXT_AS_BOOL, ParserOption, option_of
from megatron_hcp.validators.program import Unit, condition_of

_NUMBERS = (0, 1, 2, 3, 4, 8, 64)
Space = Mapping[str, Sequence[Any]]


def drawn_settings(units: Mapping[str, Unit], sections: Sequence[str]) -> Space:
    """For each setting in these sections that a condition reads, values of its type and those that it is compared with.

    `units` are those of upstream's checkout.
    """
    compared = _compared(unit for unit in units.values() if unit.kind == "def")
    space: dict[str, Sequence[Any]] = {}
    for line in units["settings"].lines:
        key, default = line.split("\t")[:2]
        name = key.rpartition(".")[2]
        if name in compared and key.startswith(tuple(sections)):
            values = _values(default, compared[name])
            if values:
                space[key] = values
    return space


def drawn_options(units: Mapping[str, Unit]) -> Mapping[str, Sequence[Sequence[str]]]:
    """For each option of upstream's parser that a condition reads, the words that may follow it."""
    compared = _compared(unit for unit in units.values() if unit.kind == "def")
    space = {}
    for line in units["options"].lines:
        option = option_of(line)
        if option.dest in compared and option.action in ("store", "store_true", "store_false"):
            space[option.names[0]] = _words(option, compared[option.dest])
    return space


def _words(option: ParserOption, others: Sequence[Any]) -> Sequence[Sequence[str]]:
    if option.action != "store":
        return [()]
    if option.kind == TEXT_AS_BOOL:
        return [("true",), ("false",)]
    texts = (
        list(ast.literal_eval(option.choices)) if option.choices.startswith("[") and "..." not in option.choices else []
    )
    numbers = {"int": _NUMBERS, "float": (0.0, 0.5, 1.0)}.get(option.kind, ())
    values = texts or numbers or [*(other for other in others if isinstance(other, str)), "other"]
    return [(str(value),) for value in values]


def _values(default: str, others: Sequence[Any]) -> list[Any]:
    if default in ("True", "False"):
        return [True, False]
    if default[:1] in "[{":
        return []
    texts = [other for other in others if isinstance(other, str)]
    if default[:1] == "'" or texts:
        own = [ast.literal_eval(default)] if default[:1] == "'" else []
        return [*own, *texts, "other"]
    value = None if default[:1] in "@." else ast.literal_eval(default)
    return [*([None] if value is None else [value]), *_NUMBERS]


def _compared(units: Iterable[Unit]) -> dict[str, list[Any]]:
    """By the last part of each name that a condition reads, the constants of those conditions."""
    found: dict[str, list[Any]] = {}
    for unit in units:
        for line in unit.lines:
            word = line.lstrip().partition(" ")[0]
            if word not in ("check", "if", "stop"):
                continue
            try:
                tree = ast.parse(condition_of(line)[0], mode="eval")
            except SyntaxError:
                continue
            constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
            reads = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
            reads += [str(value) for value in constants if isinstance(value, str) and value.isidentifier()]
            for name in reads:
                found.setdefault(name, []).extend(value for value in constants if value != name)
    return {name: list(dict.fromkeys(values)) for name, values in found.items()}
