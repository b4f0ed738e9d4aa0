"""The table of corrections: which exceptions a row is about, whether a restart would meet them, and what to change."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple


class Correction(NamedTuple):
    """Of the exceptions whose text has this shape: why the same launch would fail again, and what to change.

    corrections.txt says what the fields mean.
    """

    shape: re.Pattern[str]
    code: re.Pattern[str] | None
    where: re.Pattern[str] | None
    signature: str
    why: str
    later: bool
    """Whether `why` holds after training steps too."""
    step: str
    is_alone: bool
    is_instead: bool

    def match(self, message: str, text: str) -> re.Match[str] | None:
        """How it fits an exception's own line, else that with the lines in which it goes on."""
        return self.shape.search(message) or self.shape.search(text)


@cache
def corrections() -> tuple[Correction, ...]:
    """The rows, in order; read where a failure is to be explained."""
    return tuple(map(_row, records("corrections.txt")))


def records(name: str) -> Iterator[dict[str, str]]:
    """The records of a table beside this module: fields by their names, records apart by an empty line."""
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        for block in file.read().split("\n\n"):
            lines = [line for line in block.splitlines() if not line.startswith("#")]
            if lines:
                yield {field: value for field, _, value in (line.partition(": ") for line in lines)}


_AT_NAME = r"(?:^|(?<= raised: ))(?:[\w.]{0,80}\.)?(?:Module|Config|Runtime)??"
"""What may stand before an exception's name, also where a framework calls it its own."""


def _row(said: dict[str, str]) -> Correction:
    names = rf"{_AT_NAME}(?:{said['raises']})\b(?: ?: ?)?" if "raises" in said else ""
    code, where = said.get("code"), said.get("where")
    return Correction(
        re.compile(names + said.get("text", "")),
        re.compile(code) if code else None,
        re.compile(where) if where else None,
        said.get("signature", ""),
        said.get("why") or said.get("why at first", ""),
        "why at first" not in said,
        said.get("do", ""),
        "alone" in said or "instead" in said,
        "instead" in said,
    )
