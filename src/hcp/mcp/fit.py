"""Makes an answer fit into what an agent's window has room for, and says what was left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

MAX_BYTES = 3_400
"""Of one answer as JSON. It is sent twice, as text with each quote escaped and as structured content: under 8 kB
together."""
_MAX_STRING = 600


def fitted(answer: dict[str, Any], skip: int = 0, limit: int = MAX_BYTES) -> tuple[dict[str, Any], list[str]]:
    """The answer in at most `limit` bytes of JSON, and what was left out, in words.

    The list whose text is longest is cut first. With `skip`, so many entries are left out at the start of the one that
    is longest in the whole answer, so that a second question goes on where the first ended. Lists keep one entry; long
    texts are shortened after that.

    >>> fitted({"findings": ["a" * 40, "b" * 40, "c" * 40]}, limit=110)[1]
    ['findings: 1 to 2 of 3; ask again with skip=2 for the rest']
    """
    answer = json.loads(json.dumps(answer))
    cut: dict[str, tuple[int, int, int]] = {}
    main, items = max(_lists(answer), key=_weight, default=("", []))
    if skip and items:
        total = len(items)
        del items[: min(skip, total - 1)]
        cut[main] = (total - len(items), total, total)
    while _size(answer) > limit:
        found = max((each for each in _lists(answer) if len(each[1]) > 1), key=_weight, default=None)
        if found is None:
            break
        path, items = found
        first, _, total = cut.get(path, (0, 0, len(items)))
        items.pop()
        cut[path] = (first, first + len(items), total)
    notes = []
    for path, (first, last, total) in cut.items():
        more = f"ask again with skip={last}" if path == main else "run the command itself"
        rest = f"; {more} for the rest" if last < total else ""
        notes.append(f"{path}: {first + 1} to {last} of {total}{rest}")
    if _size(answer) > limit:
        answer = _shortened(answer)
        notes.append("long texts are shortened; run the command itself for all of them")
    return answer, notes


def _size(answer: Any) -> int:
    return len(json.dumps(answer, separators=(",", ":")).encode())


def _weight(found: tuple[str, list[Any]]) -> int:
    return _size(found[1])


def _lists(value: Any, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """The lists of an answer, by path; those inside a list belong to its entries."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _lists(inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value:
        yield path, value


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MAX_STRING else value[:_MAX_STRING] + " ..."
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    if isinstance(value, dict):
        return {key: _shortened(inner) for key, inner in value.items()}
    return value
