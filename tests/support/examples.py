"""Of each row of triage's table a line that it matches, and a similar one that it must not."""

from pathlib import Path
from typing import NamedTuple


class Lines(NamedTuple):
    example: str
    near: str


def _read() -> dict[str, Lines]:
    text = (Path(__file__).parents[1] / "triage" / "examples.txt").read_text("utf-8")
    rows = (block.split("\n") for block in text.removesuffix("\n").split("\n\n"))
    return {name: Lines(*lines) for name, *lines in rows}


EXAMPLES = _read()
"""By the id of the row."""
