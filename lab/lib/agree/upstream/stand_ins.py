"""Stand-ins for packages that upstream imports and this machine lacks. Used only beside upstream's code."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


class _Base:
    """What a class inherits in place of a missing package's class."""

    def __init_subclass__(cls, **kwargs: Any) -> None: ...


class Anything:
    """Any object: a call, an index and an attribute return it again; as a decorator it returns what it decorates."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else self

    def __getattr__(self, name: str) -> Any:
        if name in ("__name__", "__qualname__"):  # upstream registers classes by name
            return "Anything"
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: Any) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())  # otherwise Python would request item after item

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (_Base,)


class _Package(types.ModuleType):
    __version__ = "99.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if any(name == ours or name.startswith(f"{ours}.") for ours in self._names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Package(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


def stand_in_for(*names: str) -> list[str]:
    """Lets those of the packages be imported that are not installed, and any named subpackage; returns their names."""
    missing = [name for name in names if "." in name or importlib.util.find_spec(name) is None]
    sys.meta_path.append(_Finder(missing))
    return missing
