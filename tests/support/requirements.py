"""What pyproject.toml requires, and the pins of constraints.txt."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PINS, HASHED = ROOT / "constraints.txt", ROOT / "constraints.hashed.txt"


def _project() -> dict[str, Any]:
    # Before Python 3.11 the reader of TOML is tomli, which pytest brings along.
    reader = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    loaded: dict[str, Any] = reader.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return loaded


PROJECT = _project()
BASE = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
EXTRAS = {
    name: [Requirement(text) for text in texts] for name, texts in PROJECT["project"]["optional-dependencies"].items()
}
BUILD = [Requirement(text) for text in PROJECT["build-system"]["requires"]]
FOR_USERS = [*BASE, *EXTRAS["mcp"]]
"""The base and the extra for agents: what users install, whose files constraints.hashed.txt pins."""


def pinned(text: str) -> list[tuple[Requirement, tuple[str, ...]]]:
    """Each requirement of a text, in order, with its hashes."""
    lines = text.replace("\\\n", " ").splitlines()
    split = [line.partition("#")[0].split("--hash=") for line in lines]
    return [(Requirement(first), tuple(each.strip() for each in rest)) for first, *rest in split if first.strip()]


def pins_of(text: str) -> dict[str, Requirement]:
    """Name -> the line that holds for this Python."""
    pins = [pin for pin, _ in pinned(text)]
    return {canonicalize_name(pin.name): pin for pin in pins if pin.marker is None or pin.marker.evaluate()}
