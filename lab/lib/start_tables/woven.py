"""The text of the validators' tables, as validators/table.py reads it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from megatron_hcp.validators.table import Table

_MOST_LINES = 20_000
_HEAD = "# Written by lab/validators.py: release, guards, unreadable guards; @UNIT; =RELEASES"


def written(table: Table) -> str:
    """The text of a table's file."""
    rows = (" ".join(map(str, row)).rstrip() for row in table.releases)
    units = (f"@{name}\n{text}" for name, text in sorted(table.units.items()))
    return "\n".join((_HEAD, *rows, *units, ""))


def woven(texts: Sequence[Iterable[str]]) -> str:
    """The woven text of a unit's lines in each release, in their order; empty lines for a release that lacks it."""
    rows: list[tuple[str, int]] = []
    for place, text in enumerate(texts):
        lines, bit = list(text)[:_MOST_LINES], 1 << place
        merged: list[tuple[str, int]] = []
        for kind, a, b, c, d in SequenceMatcher(None, [line for line, _ in rows], lines, autojunk=False).get_opcodes():
            if kind == "equal":
                merged += [(line, mask | bit) for line, mask in rows[a:b]]
            else:
                merged += rows[a:b]
                merged += [(line, bit) for line in lines[c:d]]
        rows = merged
    parts: list[str] = []
    last = 0
    for line, mask in rows:
        if mask != last:
            parts.append(f"={mask:x}")
            last = mask
        parts.append(line)
    return "\n".join(parts)
