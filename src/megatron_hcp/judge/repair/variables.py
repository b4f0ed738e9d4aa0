"""A change of `$NNODES` in a script as a change of the line that sets it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from megatron_hcp.judge.repair.spots import Change

_REFERENCE = re.compile(r"\"?\$(?:\{(\w+)\}|(\w+))\"?")
_PLAIN = re.compile(r"[\w.+-]+")


def through_variable(text: str, changes: Sequence[Change]) -> list[Change] | None:
    """The same change in the only line that assigns the variable it replaces; None if there is no such line.

    >>> through_variable("CP=3\\nrun --cp $CP\\n", [Change(14, 17, "2")])
    [Change(start=3, end=4, text='2')]
    """
    if len(changes) != 1:
        return None
    start, end, new = changes[0].start, changes[0].end, changes[0].text
    old = text[start:end]
    before = _alike(old, new)
    after = _alike(old[before:][::-1], new[before:][::-1])
    reference = _REFERENCE.fullmatch(old[before : len(old) - after])
    value = new[before : len(new) - after]
    if reference is None or not _PLAIN.fullmatch(value):
        return None
    name = reference[1] or reference[2]
    if len(re.findall(rf"(?<![\w${{]){name}\b", text)) != 1:  # another assignment, a `read`, arithmetic
        return None
    literal = rf"(?:\$\{{{name}:?-)?([\w.+-]+)\}}?"
    line = re.search(
        rf"^[ \t]*(?:export[ \t]+|readonly[ \t]+)?{name}=([\"']?){literal}\1[ \t]*(?:#[^\n]*)?$", text, re.M
    )
    return None if line is None else [Change(line.start(2), line.end(2), value)]


def _alike(one: str, other: str) -> int:
    """How many characters two texts have in common at their start."""
    pairs = enumerate(zip(one, other))
    return next((place for place, (first, second) in pairs if first != second), min(len(one), len(other)))
