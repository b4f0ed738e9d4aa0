"""The classes of a program: their units, fields with defaults and methods, and objects made of them."""

from __future__ import annotations

from typing import Any

from megatron_hcp.validators.assign import Assignments
from megatron_hcp.validators.program import StartProgram, Unit, shape_of
from megatron_hcp.validators.values import ABSENT, Thing, same


class Objects(Assignments):
    """Finds a program's units, and makes objects of its classes."""

    def __init__(self, program: StartProgram) -> None:
        super().__init__()
        self.program = program
        self.steps = 0
        self._units: dict[str, Unit | None] = program.kept.setdefault("units", {})
        self._depths: dict[str, list[int]] = program.kept.setdefault("depths", {})
        self._ends: dict[str, list[int]] = program.kept.setdefault("ends", {})

    def has_unit(self, name: str) -> bool:
        return self._unit(name) is not None

    def fields_of(self, name: str) -> list[str] | None:
        return list(self.defaults_of(name)) if self.has_unit(name) else None

    def made(self, kind: str, fields: dict[str, Any], key: str | None) -> Any:
        """An object of a class, with these fields and the others' defaults."""
        unit = self._unit(kind)
        return Thing(fields, kind, key=key) if unit is None else self._construct(unit, [], fields, key)

    def _unit(self, name: str) -> Unit | None:
        if name not in self._units:
            unit = self._units[name] = self.program.find(name)
            if unit is not None:
                self._depths[name], self._ends[name] = shape_of(unit.lines)
        return self._units[name]

    def _construct(self, unit: Unit, given: list[Any], named: dict[str, Any], key: str | None = None) -> Any:
        start = self.method_of(unit.name, "__init__")
        if start is not None:
            thing = Thing({}, unit.name, key=key)
            self.call_unit(start, [thing, *given], named)
            return thing
        defaults = self.defaults_of(unit.name)
        fields = {**defaults, **dict(zip(defaults, given)), **named}
        thing = Thing(fields, unit.name, key=key)
        thing.changed = {name for name, value in fields.items() if not same(value, defaults.get(name, ABSENT))}
        for base in unit.head:  # whose methods are quiet at its own defaults
            thing.changed |= {name for name, value in self.defaults_of(base).items() if not same(value, fields[name])}
        ready = self.method_of(unit.name, "__post_init__")
        if ready is not None:
            self.call_unit(ready, [thing], {})
        return thing

    def defaults_of(self, name: str) -> dict[str, Any]:
        known = self.program.kept.setdefault("defaults", {})
        if name in known:
            defaults, steps = known[name]
            self.steps += steps  # as if they were evaluated again
            return dict(defaults)
        unit = self._unit(name)
        if unit is None:
            return {}
        fields: dict[str, Any] = {}
        before_steps = self.steps
        for base in reversed(unit.head):
            fields |= self.defaults_of(base)
        before, self.frame = self.frame, {}
        for line in unit.lines:
            key, _, text = line.partition(" = ")
            fields[key] = self.text_value(text)
        self.frame = before
        if not any(isinstance(value, Thing) for value in fields.values()):  # those may be changed
            known[name] = dict(fields), self.steps - before_steps
        return fields

    def method_of(self, kind: str, name: str) -> str | None:
        own = f"{kind.rstrip('_')}.{name}"
        if self.has_unit(own):
            return own
        unit = self._unit(kind)
        bases = unit.head if unit is not None and unit.kind == "class" else ()
        return next(filter(None, (self.method_of(base, name) for base in bases)), None)

    def has_unread_base(self, unit: Unit) -> bool:
        """Whether a class has fields from one that was not read."""
        bases = map(self._unit, unit.head)
        return any(base is None or self.has_unread_base(base) for base in bases)

    def kinds_of(self, kind: str) -> frozenset[str] | None:
        unit = self._unit(kind)
        if unit is None or unit.kind != "class":
            return None
        return frozenset((kind,)).union(*(self.kinds_of(base) or () for base in unit.head))
