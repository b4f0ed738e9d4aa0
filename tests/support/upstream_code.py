"""Single functions of upstream, compiled out of its source and run with stand-ins for what they call."""

from __future__ import annotations
import __future__

import ast
import builtins
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any


class Anything:
    """A stand-in whose every use gives itself; false, so that it switches nothing on."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __getitem__(self, name: Any) -> Any:
        return self

    def __bool__(self) -> bool:
        return False


class Named(dict[str, Any]):
    """Globals of an upstream function: what the case does not define is a stand-in."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            return getattr(builtins, name)
        return Anything()


class Member(int):
    """A member of an enumeration: a number whose value is itself."""

    @property
    def value(self) -> int:
        return int(self)


class Lookup:
    """Members by name: a dict in some releases, an enumeration in others."""

    def __init__(self, members: dict[str, Any]) -> None:
        self.__dict__.update(members)
        self._members = members

    def cast(self, member: Any) -> Any:
        return member

    def __getitem__(self, name: str) -> Any:
        return self._members[name]


@cache
def _definitions(path: Path) -> dict[str, ast.stmt]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {item.name: item for item in body if isinstance(item, ast.FunctionDef | ast.ClassDef)}


@cache
def function(path: Path, name: str) -> CodeType:
    """The definition of a module's function: executed, it binds the name."""
    flags = __future__.annotations.compiler_flag
    return compile(ast.Module([_definitions(path)[name]], []), name, "exec", flags=flags, dont_inherit=True)


@cache
def parameters(path: Path, name: str) -> tuple[str, ...]:
    """The names of a function's parameters."""
    node = _definitions(path)[name]
    assert isinstance(node, ast.FunctionDef)
    return tuple(argument.arg for argument in node.args.args)


@cache
def asserts(path: Path, name: str) -> tuple[tuple[CodeType, str], ...]:
    """The assertions of a class's forward that no inner condition guards, and their texts."""
    owner = _definitions(path)[name]
    assert isinstance(owner, ast.ClassDef)
    forward = next(item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "forward")
    found = [item for item in forward.body if isinstance(item, ast.Assert)]
    return tuple(
        (compile(ast.Expression(item.test), name, "eval"), ast.unparse(item.msg or item.test)) for item in found
    )
