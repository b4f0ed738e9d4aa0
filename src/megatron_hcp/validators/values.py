"""Values while validators are evaluated: plain Python, symbols, objects, and the unknown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

UNREADABLE = ""
"""Among the names of an unknown: something in upstream's code that could not be read."""
ABSENT = object()
"""A field that an object does not have."""


class NotKnown:
    """A value that is not known. `names` are the launch's settings that decide it, and `UNREADABLE`."""

    __slots__ = ("names",)

    def __init__(self, names: Iterable[str] = (UNREADABLE,)) -> None:
        self.names = frozenset(names)

    def __repr__(self) -> str:
        return f"Unknown({sorted(self.names)})"


NOT_READ = NotKnown()
STUMBLES = NotKnown()
"""What Python would raise instead of giving a value, as for `None < 1`: upstream ends there with a TypeError."""


class Symbol(str):
    """Something of upstream's that is compared and never looked into: `torch.bfloat16`, `AttnBackend.flash`."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class Thing:
    """A namespace, a config object or a dict. `kind` is its class's name; `is_closed`: it has no other fields.

    `changed` are the fields that may differ from upstream's defaults; None if that isn't followed. `key` is the
    section of the launch's settings that it is made of, `actor_rollout_ref.actor`; "" for all of them, None for none.
    """

    __slots__ = ("changed", "fields", "is_closed", "key", "kind")

    def __init__(
        self, fields: dict[Any, Any], kind: str = "dict", is_closed: bool = True, key: str | None = None
    ) -> None:
        self.fields, self.kind, self.is_closed, self.key = fields, kind, is_closed, key
        self.changed: set[str] | None = None

    def __repr__(self) -> str:
        return repr(self.fields) if self.kind == "dict" else self.kind


_PLAIN = frozenset((int, str, bool, float, type(None), NotKnown))


def is_plain(values: Iterable[Any]) -> bool:
    """Whether values are nothing that changes or is looked into: plain ones, unknown ones, lists and tuples of them."""
    return all(type(value) in _PLAIN or (type(value) in (list, tuple) and is_plain(value)) for value in values)


class Lambda:
    """A function written as an expression, with the names around it."""

    __slots__ = ("frame", "tree")

    def __init__(self, tree: Any, frame: dict[str, Any]) -> None:
        self.tree, self.frame = tree, frame


def merged(*values: Any) -> NotKnown:
    """The unknown that depends on all unknown ones among the values."""
    names: frozenset[str] = frozenset()
    for value in values:
        if isinstance(value, NotKnown):
            names = names | value.names if names else value.names
        elif isinstance(value, (list, tuple)):
            for item in value:
                if isinstance(item, NotKnown):
                    names |= item.names
    return NotKnown(names or (UNREADABLE,))


def truth(value: Any) -> bool | NotKnown:
    """Whether Python takes a value for true."""
    if value is True or value is False or isinstance(value, NotKnown):
        return value
    if isinstance(value, Symbol):
        return True
    if isinstance(value, Thing):
        return bool(value.fields) if value.kind == "dict" else True
    return bool(value)


def same(one: Any, other: Any) -> bool:
    """Whether two values are known to be the same."""
    if one is other:
        return True
    if isinstance(one, (NotKnown, Thing)) or isinstance(other, (NotKnown, Thing)) or type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
