"""What all calls of one followed function share."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from follow.modules import Modules
from follow.values import UNKNOWN, Builtin, Class, Function, Module, Node

_BUILTINS = frozenset(
    "isinstance issubclass getattr hasattr setattr len str int float bool list tuple dict set sorted max min range sum "
    "any all abs divmod zip enumerate print type object".split()
)
_FROM_PACKAGES = {
    ("dataclasses", "replace"): Builtin("replace"),
    ("dataclasses", "fields"): Builtin("fields"),
    ("copy", "deepcopy"): Builtin("deepcopy"),
    ("typing", "cast"): Builtin("cast"),
    ("functools", "partial"): Builtin("partial"),
}
_ENUMS = ("Enum", "IntEnum", "StrEnum")
_PLAIN_BASES = ("object", "ABC", "Protocol", "Generic")
_TRANSPARENT = frozenset(("register", "override", "lru_cache(maxsize=None)", "functools.lru_cache(maxsize=None)"))
"""Decorators that leave what a function does as it is."""


class World:
    """The modules, the constants that were evaluated, and how many doubtful conditions stand around a line."""

    def __init__(self, modules: Modules, made_of: Callable[[str], Node] = lambda model: Node(model=model)) -> None:
        self.modules = modules
        self.made_of = made_of
        """The configuration that upstream makes of a Hugging Face model, by the model's name."""
        self.doubts = 0
        self.constants: dict[tuple[str, str], Any] = {}
        self._bases: dict[tuple[str, str], tuple[Class, ...] | None] = {}
        self._fields: dict[tuple[str, str], tuple[tuple[str, ast.AnnAssign, str], ...]] = {}

    def named(self, module: str, name: str) -> Any:
        """What a name means at the top of a module; a constant as its defining expression (`ast.expr`, module)."""
        found = self.modules.find(module, name)
        if found is None:
            return self._outside(module, name)
        home, lines = found
        if not lines:
            return Module(home)
        last = lines[-1]
        if isinstance(last, ast.ClassDef):
            return Class(home, last)
        if isinstance(last, ast.FunctionDef):
            return Function(home, last) if _is_plain(last) else UNKNOWN
        if len(lines) == 1 and isinstance(last, ast.Assign | ast.AnnAssign) and last.value is not None:
            return home, last.value
        return UNKNOWN

    def _outside(self, module: str, name: str) -> Any:
        lines = self.modules.names(module).get(name)
        if lines is None:
            return Builtin(name) if name in _BUILTINS else UNKNOWN
        line = lines[-1]
        if isinstance(line, ast.ImportFrom):
            original = next((item.name for item in line.names if (item.asname or item.name) == name), name)
            return _FROM_PACKAGES.get((line.module or "", original), UNKNOWN)
        return UNKNOWN

    def mro(self, kind: Class) -> tuple[Class, ...] | None:
        """The class and all classes below it, itself first; None where one is not in the sources."""
        key = (kind.module, kind.code.name)
        if key not in self._bases:
            self._bases[key] = None
            self._bases[key] = self._linear(kind)
        return self._bases[key]

    def _linear(self, kind: Class) -> tuple[Class, ...] | None:
        """Python's own order (C3) of a class and those below it."""
        orders: list[list[Class]] = []
        for base in kind.code.bases:
            text = ast.unparse(base).partition("[")[0]
            if text.rpartition(".")[2] in _PLAIN_BASES:
                continue
            below = self.named(kind.module, text)
            order = self.mro(below) if isinstance(below, Class) else None
            if order is None:
                return None
            orders.append(list(order))
        orders.append([order[0] for order in orders])
        found = [kind]
        while orders := [order for order in orders if order]:
            tails = [item.code for order in orders for item in order[1:]]
            first = next((order[0] for order in orders if not any(order[0].code is code for code in tails)), None)
            if first is None:
                return None
            found.append(first)
            orders = [[item for item in order if item.code is not first.code] for order in orders]
        return tuple(found)

    def is_enum(self, kind: Class) -> bool:
        return any(ast.unparse(base).rpartition(".")[2] in _ENUMS for base in kind.code.bases)

    def is_dataclass(self, kind: Class) -> bool:
        return any("dataclass" in ast.unparse(item) for item in kind.code.decorator_list)

    def method(self, kind: Class, name: str, after: Class | None = None) -> Function | None:
        """A method by name, looked up from `after`'s successor on where that is given (`super()`)."""
        order = self.mro(kind) or (kind,)
        if after is not None:
            place = next((place for place, item in enumerate(order) if item.code is after.code), len(order))
            order = order[place + 1 :]
        for item in order:
            for line in item.code.body:
                if isinstance(line, ast.FunctionDef) and line.name == name and _is_plain(line):
                    return Function(item.module, line, {"__class__": item})
        return None

    def fields(self, kind: Class) -> tuple[tuple[str, ast.AnnAssign, str], ...]:
        """(name, line, module) of every field of a dataclass, in the order and with the defaults that Python gives it.

        Each base brings all of its fields, inherited ones too, so that a base's inherited default can win over the
        default of a class that comes before it in the order of methods (dataclasses.py, `_process_class`).
        """
        key = (kind.module, kind.code.name)
        if key not in self._fields:
            self._fields[key] = tuple(self._fields_of(kind).values())
        return self._fields[key]

    def _fields_of(self, kind: Class) -> dict[str, tuple[str, ast.AnnAssign, str]]:
        found: dict[str, tuple[str, ast.AnnAssign, str]] = {}
        below = (self.mro(kind) or (kind,))[1:]
        if not self.is_dataclass(kind):
            nearest = next((item for item in below if self.is_dataclass(item)), None)
            return {} if nearest is None else {field[0]: field for field in self.fields(nearest)}
        for item in reversed(below):
            found |= {field[0]: field for field in self.fields(item)}
        for line in kind.code.body if self.mro(kind) else ():
            if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
                continue
            if not ast.unparse(line.annotation).startswith(("ClassVar", "typing.ClassVar")):
                found[line.target.id] = line.target.id, line, kind.module
        return found


def _is_plain(code: ast.FunctionDef) -> bool:
    return {ast.unparse(item) for item in code.decorator_list} <= _TRANSPARENT
