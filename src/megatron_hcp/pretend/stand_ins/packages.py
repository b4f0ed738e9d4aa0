"""Packages that upstream imports and a dry run never enters: each has any name, and does nothing."""

from __future__ import annotations

import sys
import typing
from typing import Any

from megatron_hcp.proofs.te_cpu.absent import ONLY_IMPORTED, AbsentPackages

STANDS_FOR = "packages that are only imported: Triton, tokenizers, ONNX; Python 3.12's typing.override"
CANNOT_TELL = "what their functions do"

IMPORTED = (*ONLY_IMPORTED, "six", "tensorstore", "zarr", "regex", "psutil", "nltk", "ftfy")


def install() -> None:
    """A package of these that is installed stays as it is."""
    sys.meta_path.append(AbsentPackages(IMPORTED))
    if not hasattr(typing, "override"):
        anything: Any = typing
        anything.override = lambda method: method  # upstream asks for 3.12, and its wheels' code runs under 3.11
