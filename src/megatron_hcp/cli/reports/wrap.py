"""Lines of a report that fit a terminal of 80 columns."""

from __future__ import annotations

import textwrap

WIDTH = 80


def wrapped(label: str, text: str, indent: int | None = None) -> list[str]:
    """The text after its label; further lines are aligned with it, or at `indent`. Words are never broken.

    >>> wrapped("  do      ", "one two", 4)
    ['  do      one two']
    """
    return textwrap.wrap(
        text, WIDTH, initial_indent=label, subsequent_indent=" " * (len(label) if indent is None else indent),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
