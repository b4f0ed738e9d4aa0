"""The value of an expression of the validators, with true, false and unknown.

The notation is a small part of Python's: names, fields, literals, comparisons, `and`, `or`, `not`, arithmetic, `if`
expressions, comprehensions over known lists, and calls of the functions in `BUILTIN` and of the program's own ones.
`...` stands for what could not be read. Python's parser gives the tree; nothing of upstream is compiled or called.
"""

from __future__ import annotations

import _ast
from typing import Any

from megatron_hcp.validators.builtin import method
from megatron_hcp.validators.nodes import reader_of_tree
from megatron_hcp.validators.values import ABSENT, NOT_READ, Lambda, NotKnown, Symbol, Thing, merged
from megatron_hcp.validators.words import reader_of

_ENVIRON = Symbol("environ")


class Expressions:
    """Evaluates expressions; what the program's own functions do is in the class that builds on it."""

    def __init__(self) -> None:
        self.frame: dict[str, Any] = {}

    def call_unit(self, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        raise NotImplementedError

    def has_unit(self, name: str) -> bool:
        """Whether the program has a function or class of that name; alone, expressions have none."""
        return False

    def made(self, kind: str, fields: dict[str, Any], key: str | None) -> Any:
        raise NotImplementedError

    def outside(self, name: str, given: list[Any]) -> Any:
        """What a function says of the machine or the model: `env`, `at_least`, `installed`, `type_of_model`, …"""
        return NOT_READ

    def change(self, thing: Thing, name: Any, value: Any) -> None:
        raise NotImplementedError

    def fields_of(self, name: str) -> list[str] | None:
        raise NotImplementedError

    def method_of(self, kind: str, name: str) -> str | None:
        """The unit of a class's method, or of its bases'."""

    def kinds_of(self, kind: str) -> frozenset[str] | None:
        """A class's name and those of its bases; None for a class that isn't known."""
        return None

    def text_value(self, text: str) -> Any:
        """The value of an expression's text."""
        return reader_of(text)(self)

    def value(self, tree: Any) -> Any:
        """The value of an expression's tree."""
        return reader_of_tree(tree)(self)

    def field(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Thing):
            found = owner.fields.get(name, ABSENT)
            return NOT_READ if found is ABSENT else found
        if isinstance(owner, NotKnown):
            return owner
        if isinstance(owner, Symbol):
            if name == "name":
                return str(owner).rpartition(".")[2]
            return NOT_READ if name == "value" else Symbol(f"{owner}.{name}")
        return NOT_READ

    def bind(self, target: Any, value: Any) -> None:
        """Gives names of this frame a value; one that does not fit leaves them unknown."""
        if isinstance(target, _ast.Name):
            self.frame[target.id] = value
        elif isinstance(target, (_ast.Tuple, _ast.List)):
            fits = isinstance(value, (list, tuple)) and len(value) == len(target.elts)
            rest = merged(value) if isinstance(value, NotKnown) else NOT_READ
            for place, part in enumerate(target.elts):
                self.bind(part, value[place] if fits else rest)

    def applied(self, called: Lambda, given: list[Any]) -> Any:
        """What a function written as an expression gives for these arguments, which are by position."""
        names = [argument.arg for argument in called.tree.args.args]
        before, self.frame = self.frame, {**called.frame, **dict(zip(names, given))}
        try:
            return self.value(called.tree.body)
        finally:
            self.frame = before

    def method_value(self, owner: Any, name: str, given: list[Any]) -> Any:
        if isinstance(owner, NotKnown):
            return owner
        if owner == _ENVIRON and name == "get":
            return self.outside("env", given)
        if isinstance(owner, Thing) and owner.kind == "dict":
            return self._dict_method(owner, name, given)
        return method(owner, name, given)

    def _dict_method(self, owner: Thing, name: str, given: list[Any]) -> Any:
        if name in ("keys", "values", "items"):
            return list(getattr(owner.fields, name)())
        if given and isinstance(given[0], NotKnown):
            return given[0]
        default = NOT_READ if not owner.is_closed else given[1] if len(given) > 1 else None
        found = owner.fields.get(given[0], default) if name in ("get", "pop") else NOT_READ
        if name == "pop" and given[0] in owner.fields:
            self.change(owner, given[0], ABSENT)
        return found
