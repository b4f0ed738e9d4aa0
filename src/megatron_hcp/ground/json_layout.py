"""The layout of this repository's JSON files: what fits on a line stands on one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

WIDTH = 120
ROW_WIDTH = 500
"""For tables, so that a record has one line."""


def laid_out(value: Any, width: int = WIDTH, indent: int = 0, before: int = 0) -> str:
    """A value as JSON: keys keep their order, and the items of a long list of plain values share lines.

    `indent` and `before` are the columns that the indentation and the key occupy on the first line.

    >>> print(laid_out({"cp": [2, 4], "ep": []}, width=16))
    {
      "cp": [2, 4],
      "ep": []
    }
    """
    line = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, (dict, list)) or indent + before + len(line) < width:
        return line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        keys = [f"{json.dumps(key, ensure_ascii=False)}: " for key in value]
        rows = [key + laid_out(item, width, indent + 2, len(key)) for key, item in zip(keys, value.values())]
    else:
        rows = [laid_out(item, width, indent + 2) for item in value]
        if not any(isinstance(item, (dict, list)) for item in value):
            rows = list(_filled(rows, width - len(inner) - 1))
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{inner}" + f",\n{inner}".join(rows) + f"\n{' ' * indent}{right}"


def _filled(items: Sequence[str], width: int) -> Iterator[str]:
    """The items, as many to a line as fit."""
    line = items[0]
    for item in items[1:]:
        if len(line) + 2 + len(item) > width:
            yield line
            line = item
        else:
            line = f"{line}, {item}"
    yield line
