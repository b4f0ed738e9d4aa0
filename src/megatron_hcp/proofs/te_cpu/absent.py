"""Stand-ins for absent modules: Transformer Engine's compiled one, and Python packages that it merely imports.

None of them computes anything. A function of the compiled module that nothing replaces raises when it is called, so
that no call is silently skipped.
"""

from __future__ import annotations

import dataclasses
import importlib.machinery
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

COMPILED = "transformer_engine_torch"
ONLY_IMPORTED = ("triton", "onnx", "onnxscript", "pydantic", "transformer_engine_cu12", "cutlass", "cudnn")
"""Packages that modules other than the attention import: their kernels, ONNX export and checked data classes."""


class _Member(int):
    """A member of a pybind enumeration: a number with a name."""

    name: str

    @property
    def value(self) -> int:
        return int(self)

    def __iter__(self) -> Iterator[Any]:
        """Since 2.20 a backend comes in a pair with the reason against it."""
        return iter((self, ""))


class _Enumeration(type):
    """A pybind enumeration that has every member requested, each with its own number."""

    made: dict[str, _Member]

    @property
    def __members__(cls) -> dict[str, _Member]:
        return cls.made

    def __getattr__(cls, name: str) -> _Member:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in cls.made:
            cls.made[name] = _Member(len(cls.made))
            cls.made[name].name = name
        return cls.made[name]


class CompiledModule(ModuleType):
    """transformer_engine_torch: a capitalized name is an enumeration, any other a missing function."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made: Any = _Enumeration(name, (), {"made": {}}) if name[0].isupper() else self._missing(name)
        setattr(self, name, made)
        return made

    @staticmethod
    def _missing(name: str) -> Callable[..., Any]:
        def missing(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(f"{COMPILED}.{name} is compiled: no stand-in here")

        return missing


class _Anything:
    """Accepts any use; as a decorator it changes nothing."""

    __name__ = __qualname__ = "anything"
    __iter__ = None
    """A loop over it, which __getitem__ would let go on for ever, is refused."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _: Any) -> Any:
        return self

    def __or__(self, other: Any) -> Any:
        return other

    __ror__ = __or__

    def __instancecheck__(self, value: Any) -> bool:
        """As a class it has no instances: einops asks so of each package of arrays that is imported."""
        return False

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """As a base class it is none."""
        return ()

    def __delattr__(self, _: str) -> None:
        """What it has is gone: ms-swift takes constructors from trl's classes."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        """As a context, such as a timer, it changes nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self


class _ImportedModule(ModuleType):
    """A package whose names are used while other modules are imported, and never after."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)  # who looks for it asks for that
        self.__path__: list[str] = []
        self.__version__ = "3.5.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "dataclass":  # pydantic's also checks types; the FP8 recipes are such classes, and are not used here
            return dataclasses.dataclass
        return _Anything()


class AbsentPackages:
    """A finder that is asked last: a package of these that is installed stays as it is."""

    def __init__(self, names: Iterable[str] = ONLY_IMPORTED) -> None:
        self.names = frozenset(names)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] not in self.names or is_part_of_installed(name):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _ImportedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """An empty module."""


def is_part_of_installed(name: str) -> bool:
    """Whether it would be a part of a package that is really here: `from regex import *` asks for each name so."""
    package = sys.modules.get(name.rpartition(".")[0])
    return getattr(package, "__file__", None) is not None


def anything() -> Any:
    """An object that accepts any use."""
    return _Anything()


def empty_module(name: str) -> ModuleType:
    """A module that has any name."""
    return _ImportedModule(name)
