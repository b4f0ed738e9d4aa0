"""Assignments to names, to fields of objects, and to items of dicts and lists."""

from __future__ import annotations

import _ast
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
        """Gives what a target's text means a value. The most frequent kinds need no parser."""
        owner, name = _place_of(target)
        if owner == "":
            self.journal.put(self.frame, name, value)
        elif owner is not None and isinstance(thing := self.frame.get(owner), Thing):
            self.change(thing, name, value)
        else:
            self.assign(tree_of(target), value)

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
            fits = isinstance(value, (list, tuple)) and len(value) == len(target.elts)
            rest = value if isinstance(value, NotKnown) or value is ABSENT else NOT_READ
            for place, part in enumerate(target.elts):
                self.assign(part, value[place] if fits else rest)


@cache
def _sides_of(line: str) -> tuple[str, str]:
    target, _, text = line.partition(" = ")
    return target, text


@cache
def _place_of(target: str) -> tuple[str | None, str]:
    """(owner, name) of a name, whose owner is "", of a field `x.y`, or of an item of a dict under a written name,
    `x['y']`; the owner of anything else is None."""
    owner, dot, name = target.partition(".")
    if not dot and owner.isidentifier():
        return "", owner
    if name.isidentifier():
        return owner, name
    if target[-2:] == "']" and target.count("[") == 1:
        owner, _, name = target.partition("['")
        return owner, name[:-2]
    return None, ""
