"""What tells guards apart, and refusals that are independent of each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from megatron_hcp.validators.expression import Expressions
from megatron_hcp.validators.outcome import Guard, Refusal
from megatron_hcp.validators.program import Unit, condition_of
from megatron_hcp.validators.trees import names_in, path_of, tree_of, variable_fields
from megatron_hcp.validators.values import NotKnown, Thing

_MEGATRON_LM = ("megatron/core/", "megatron/training/")


def guard_of(repo: str, unit: Unit, line: str) -> Guard:
    """The guard in a line of a unit."""
    return _guard_in(repo, unit.path, unit.name, line)


@cache
def _guard_in(repo: str, path: str, function: str, line: str) -> Guard:
    condition, message = condition_of(line)
    if path.startswith(_MEGATRON_LM):  # whoever starts it
        repo = "megatron-lm"
    own = line.split("\t")[2:]
    return Guard(repo, path, function, own[0] if own else "", condition, message)


def stop_below(unit: Unit, at: int) -> str | None:
    """The guard that is all that an `if` heads."""
    line = unit.lines[at + 1] if at + 1 < len(unit.lines) else ""
    depth = len(unit.lines[at]) - len(unit.lines[at].lstrip(" "))
    return line if line.startswith(f"{' ' * (depth + 1)}stop ") else None


def sections_in(frame: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Which objects of a function are sections of the settings, and which fields of a `self` that is none are some."""
    yield from _sections(frame)
    own = frame.get("self")
    if isinstance(own, Thing) and own.key is None:
        yield from ((f"self.{field}", key) for field, key in _sections(own.fields))


def _sections(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return ((name, value.key) for name, value in values.items() if isinstance(value, Thing) and value.key is not None)


def values_in(condition: str, run: Expressions, unit: Unit) -> tuple[tuple[str, object], ...]:
    """The known settings that a condition in a unit reads, by upstream's names, at this point of a run."""
    found: dict[str, object] = {}
    whole = tree_of(condition)
    by_variable = {variable: (owner, tree) for owner, variable, tree in variable_fields(whole)}
    for name, tree in names_in(whole, path_of):
        value = run.value(tree)
        if name in by_variable:  # `getattr(args, arg)`: the field that is meant
            owner, tree = by_variable[name]
            name, value = f"{owner}.{value}", run.value(tree)
        if not isinstance(value, (NotKnown, Thing)) and name.partition(".")[0] in run.frame:
            found[name] = sorted(value, key=str) if isinstance(value, frozenset) else value
            found |= _field_behind(name, run, unit)
    return tuple(found.items())


def _field_behind(name: str, run: Expressions, unit: Unit) -> dict[str, object]:
    """The field that a name of the function was given, as in `value = getattr(self, field_name)`."""
    for line in _lines_with_getattr(unit.lines):
        if line.startswith(f"{name} = getattr("):
            for owner, variable, tree in variable_fields(tree_of(line.partition(" = ")[2])):
                return {f"{owner}.{run.frame.get(variable)}": run.value(tree)}
    return {}


@lru_cache(maxsize=256)
def _lines_with_getattr(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The lines that give a name what getattr() finds: a guard asks for those of each name that it reads."""
    return tuple([line.lstrip() for line in lines if " = getattr(" in line])


def independent(refusals: list[Refusal]) -> tuple[Refusal, ...]:
    """The first refusal of each function that reads no setting of an earlier one: those that are independent of it.

    Behind another, one that reads upstream's own variables alone may be its consequence.
    """
    kept: list[Refusal] = []
    seen: set[str] = set()
    functions: set[str] = set()
    for refusal in refusals:
        names = {name.rpartition(".")[2] for name, _ in names_in(tree_of(refusal.guard.condition))}
        reads_settings = not kept or any("." in name for name, _ in refusal.values)
        if reads_settings and refusal.guard.function not in functions and not names & seen:
            kept.append(refusal)
        functions.add(refusal.guard.function)
        seen |= names
    return tuple(kept)
