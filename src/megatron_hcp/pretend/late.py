"""Replaces names of upstream's by dotted path, where a release has them."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any

from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stages import begins


def replace(path: str, ours: Any) -> None:
    """`module.name` or `module.Class.name` is ours from now on; a release without it is left as it is."""
    owner, _, name = path.rpartition(".")
    holder = _find(owner)
    if holder is not None and hasattr(holder, name):
        setattr(holder, name, ours)


def mark(path: str, stage: str) -> None:
    """A stage begins where upstream calls `module.name` or `module.Class.name`; a release without it has no mark."""
    owner, _, name = path.rpartition(".")
    holder = _find(owner)
    if holder is not None and hasattr(holder, name):
        setattr(holder, name, begins(getattr(holder, name), stage))


def replace_everywhere(path: str, ours: Any) -> None:
    """Also in the modules of upstream that imported it by name."""
    owner, _, name = path.rpartition(".")
    real = getattr(_find(owner), name, None)
    if real is None:
        return
    for module in list(sys.modules.values()):
        if RECORD.is_upstream(getattr(module, "__file__", None) or "") and vars(module).get(name) is real:
            setattr(module, name, ours)


def _find(path: str) -> Any:
    """A module, or a class in one; None where the release has none."""
    with contextlib.suppress(ImportError):
        return importlib.import_module(path)
    owner, _, name = path.rpartition(".")
    with contextlib.suppress(ImportError):
        return getattr(importlib.import_module(owner), name, None)
    return None
