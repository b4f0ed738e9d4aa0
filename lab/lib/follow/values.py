"""The values of followed code: plain Python, objects with fields, and what is not known."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple


class Unknown:
    """A value that the sources alone don't determine."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


class Member(str):
    """An enum's member, or a constant of a package that is not followed (`torch.bfloat16`), by its name."""


class Argument(Unknown):
    """What a parameter of the followed function will be given."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Argument({self.name})"


class Class(NamedTuple):
    """A class and the module in which its names mean something."""

    module: str
    code: ast.ClassDef


class Function(NamedTuple):
    """A function or lambda, the names around it, and the arguments that are bound already."""

    module: str
    code: ast.FunctionDef | ast.Lambda
    around: Mapping[str, Any] = {}
    bound: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}


class Module(NamedTuple):
    name: str


class Builtin(NamedTuple):
    """A function of Python's own, or a method of a plain value."""

    name: str
    owner: Any = None


class Node:
    """An object. `is_open`: fields that are not in `fields` are unknown; else they are all there.

    `model` is the Hugging Face model that it was made from; "" = none, or not known.
    """

    def __init__(
        self, kind: Class | None = None, fields: dict[str, Any] | None = None, model: str = "", is_open: bool = True
    ) -> None:
        self.kind = kind
        self.fields = fields if fields is not None else {}
        self.model = model
        self.is_open = is_open

    @property
    def name(self) -> str:
        return self.kind.code.name if self.kind is not None else ""

    def spoil(self) -> None:
        """Code that is not followed had access to the object: nothing about it is known any more."""
        for value in self.fields.values():
            if isinstance(value, Node):
                value.spoil()
        self.fields = {}
        self.kind = None
        self.is_open = True


class Kept(Node):
    """An object that code which is not followed leaves as it is."""

    def __init__(self, kind: Class, fields: dict[str, Any]) -> None:
        super().__init__(kind, fields, is_open=False)

    def spoil(self) -> None:
        pass


class Raised(Exception):
    """The followed code raises an error."""


class NotFollowed(Exception):
    """The followed code does what cannot be followed, in a way that leaves nothing known."""
