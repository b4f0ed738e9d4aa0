"""Which lines of a text changed, and the unified diff of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from itertools import takewhile

_MOST = 1_000_000
"""Longer stretches (lines of one text times lines of the other) are not compared inside: that takes quadratic time."""


class LineMatcher(difflib.SequenceMatcher[str]):
    """Matches the lines of two texts: common beginnings and ends first, the rest as difflib does where it is short.

    The time is linear in texts that differ in few places.
    """

    def __init__(self, before: Sequence[str], after: Sequence[str]) -> None:
        super().__init__(None, before, after)
        self._texts = before, after

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        """The common beginning of the stretches [alo, ahi) and [blo, bhi), else their common end, else any match."""
        before, after = self._texts[0][alo:ahi], self._texts[1][blo:bhi]
        if size := _shared(before, after):
            return difflib.Match(alo, blo, size)
        if size := _shared(before[::-1], after[::-1]):
            return difflib.Match(alo + len(before) - size, blo + len(after) - size, size)
        if len(before) * len(after) > _MOST:
            return difflib.Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)


def _shared(before: Sequence[str], after: Sequence[str]) -> int:
    """How many lines both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))


def unified(
    before: Sequence[str], after: Sequence[str], old: str, new: str, *, context: int, end: str = "\n"
) -> Iterator[str]:
    """The lines of a unified diff, as `difflib.unified_diff` writes them; none if nothing differs.

    Args:
        before: the lines, with their ends.
        after: the same of the new text.
        old: how the header names the old text.
        new: how it names the new one.
        context: lines shown around a change.
        end: what ends the lines of the headers.
    """
    for number, group in enumerate(LineMatcher(before, after).get_grouped_opcodes(context)):
        if not number:
            yield f"--- {old}{end}"
            yield f"+++ {new}{end}"
        (_, one, _, three, _), (_, _, two, _, four) = group[0], group[-1]
        yield f"@@ -{_extent(one, two)} +{_extent(three, four)} @@{end}"
        for what, first, last, start, stop in group:
            if what == "equal":
                yield from (" " + line for line in before[first:last])
                continue
            yield from ("-" + line for line in before[first:last])
            yield from ("+" + line for line in after[start:stop])


def _extent(first: int, end: int) -> str:
    """Lines [first, end), counted from 0, as a hunk's header has them."""
    size = end - first
    return f"{first + (size > 0)}" + (f",{size}" if size != 1 else "")
