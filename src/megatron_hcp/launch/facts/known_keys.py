"""The keys that upstream's sources declare, by framework: known_keys.txt, which lab/known_keys.py writes."""

from __future__ import annotations

import os
from functools import cache


@cache
def section(name: str) -> frozenset[str]:
    """The keys of one section of the file, which has a line per parent: `model.transformer: name name`."""
    text = _text().partition(f"[{name}]\n")[2].partition("\n[")[0]
    keys: set[str] = set()
    for line in text.splitlines():
        parent, _, names = line.partition(": ")
        keys.update(names.split() if parent == "-" else [f"{parent}.{name}" for name in names.split()])
    return frozenset(keys)


@cache
def _text() -> str:
    with open(os.path.join(os.path.dirname(__file__), "known_keys.txt"), encoding="utf-8") as file:
        return file.read()
