"""Packages that upstream imports and a dry run never enters: each has any name, and does nothing."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import typing
from collections.abc import Iterable
from typing import Any

from megatron_hcp.proofs.te_cpu.absent import ONLY_IMPORTED, AbsentPackages, empty_module

STANDS_FOR = "packages that are only imported: Triton, tokenizers, ONNX; Python 3.12's typing.override"
CANNOT_TELL = "what their functions do"

IMPORTED = (*ONLY_IMPORTED, "six", "tensorstore", "zarr", "regex", "psutil", "nltk", "ftfy")


class _Parts(AbsentPackages):
    """Finds parts of a namespace package too."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not any(name == one or name.startswith(f"{one}.") for one in self.names):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]


def only_import(names: Iterable[str]) -> None:
    """Packages that a framework only imports: what is installed stays as it is, and what was put out of reach comes."""
    for name in names:
        if name in sys.modules and getattr(sys.modules[name], "__file__", None) is None:
            del sys.modules[name]
    sys.meta_path.append(_Parts(names))


class TritonKernel:
    """A kernel that Triton would compile: it can be defined, and not be started."""

    def __init__(self, function: Any) -> None:
        self.__name__ = getattr(function, "__name__", "?")

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"the Triton kernel {self.__name__}")

    __getitem__ = __call__


def jit(function: Any = None, **_: Any) -> Any:
    """triton.jit, with and without arguments."""
    return TritonKernel if function is None else TritonKernel(function)


def install() -> None:
    """A package of these that is installed stays as it is."""
    sys.meta_path.append(AbsentPackages(IMPORTED))
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        triton: Any = empty_module("triton")
        triton.jit = jit
        sys.modules["triton"] = triton
    if not hasattr(typing, "override"):
        anything: Any = typing
        anything.override = lambda method: method  # upstream asks for 3.12, and its wheels' code runs under 3.11
