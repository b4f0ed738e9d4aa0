"""Assignments to names, to fields of objects, and to items of dicts and lists."""

from __future__ import annotations

import _ast
from collections.abc import Sequence
from functools import cache
from typing import Any

from megatron_hcp.validators.expression import Expressions
from megatron_hcp.validators.journal import Journal
from megatron_hcp.validators.trees import tree_of
from megatron_hcp.validators.values import ABSENT, NOT_READ, STUMBLES, NotKnown, Thing


class Assignments(Expressions):
    """Assigns; what is written goes through a journal."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal()
        self.maybe: list[NotKnown] = []
        """What decides whether upstream comes to the statement that runs."""

    def change(self, thing: Thing, name: Any, value: Any) -> None:
        if thing.changed is not None:
            thing.changed.add(name)
        self.journal.put(thing.fields, name, value)

    def assign_line(self, line: str) -> None:
        """Runs `TARGET = EXPRESSION`."""
        target, text = _sides_of(line)
        value = self.text_value(text)
        if value is STUMBLES and (self.maybe or text[-2:] != "']"):
            value = NOT_READ  # what a guard itself stumbles over, or a key that isn't there, is sure to be on its way
        self.assign_text(target, value)

    def assign_text(self, target: str, value: Any) -> None:
        """Gives what a target's text means a value; several targets get their parts of it. Most need no parser."""
        places = _places_of(target)
        if places is None:
            self.assign(tree_of(target), value)
        elif len(places) == 1:
            self._put(*places[0], value)
        else:
            for place, part in zip(places, _parts_of(value, len(places))):
                self._put(*place, part)

    def _put(self, owner: str, name: str, value: Any) -> None:
        if not owner:
            self.journal.put(self.frame, name, value)
        elif isinstance(thing := self.text_value(owner), Thing):
            self.change(thing, name, value)

    def assign(self, target: Any, value: Any) -> None:
        """Gives what a target's tree means a value; several targets get their parts of it."""
        if isinstance(target, _ast.Name):
            self.journal.put(self.frame, target.id, value)
        elif isinstance(target, _ast.Attribute):
            owner = self.value(target.value)
            if isinstance(owner, Thing):
                self.change(owner, target.attr, value)
        elif isinstance(target, _ast.Subscript):
            owner, key = self.value(target.value), self.value(target.slice)
            if isinstance(owner, Thing):
                if not isinstance(key, NotKnown):
                    self.change(owner, key, value)
                else:
                    for name in list(owner.fields):
                        self.change(owner, name, key)
            elif isinstance(owner, list) and isinstance(key, int) and -len(owner) <= key < len(owner):
                changed = list(owner)
                changed[key] = value
                self.assign(target.value, changed)
        elif isinstance(target, (_ast.Tuple, _ast.List)):
            for part, own in zip(target.elts, _parts_of(value, len(target.elts))):
                self.assign(part, own)


@cache
def _sides_of(line: str) -> tuple[str, str]:
    target, _, text = line.partition(" = ")
    return target, text


def _parts_of(value: Any, count: int) -> Sequence[Any]:
    """What each of so many targets gets of a value."""
    if isinstance(value, (list, tuple)) and len(value) == count:
        return value
    return [value if isinstance(value, NotKnown) or value is ABSENT else NOT_READ] * count


@cache
def _places_of(target: str) -> list[tuple[str, str]] | None:
    """(owner, name) of each name, whose owner is "", of a field `x.y.z`, or of an item of a dict under a written name,
    `x['y']`; None if there is anything else."""
    places = []
    for one in target.split(", "):
        is_item = one[-2:] == "']" and one.count("[") == 1
        owner, _, name = one[:-2].partition("['") if is_item else one.rpartition(".")
        names = [*owner.split("."), *(() if is_item else (name,))] if owner else [name]
        if not all(map(str.isidentifier, names)):
            return None
        places.append((owner, name))
    return places
