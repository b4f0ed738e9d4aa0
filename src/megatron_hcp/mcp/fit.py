"""Shortens an answer to fit an agent's context window, and says what was left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from megatron_hcp.ground.visible import SHORTENED, shortened

MAX_BYTES = 6_000
"""Maximum bytes of one answer as JSON. With the text of `summary` beside it, under 8 kB."""
MAX_PART = 7_500
"""Maximum bytes of a part of a document, which is sent once."""


def fitted(
    answer: dict[str, Any], skip: int = 0, limit: int = MAX_BYTES, main: str = "", spare: Sequence[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """The answer in at most `limit` bytes of JSON, and what was left out, in words.

    The `spare` parts are dropped first, in order: a key, or `list[].key`, which is a key of a list's entries. Then the
    list with the longest text is cut. With `skip`, that many entries are left out at the start of the list `main` (or
    of the longest list), so that a second question continues where the first ended. Lists keep at least one entry;
    long texts are shortened after that.

    >>> fitted({"findings": ["a" * 40, "b" * 40, "c" * 40]}, limit=110)[1]
    ['findings: 1 to 2 of 3; ask again with skip=2 for the rest']
    """
    answer = json.loads(json.dumps(answer))
    cut: dict[str, tuple[int, int, int]] = {}
    lists = dict(_lists(answer))
    if main not in lists:
        main = max(lists, key=lambda path: _size(lists[path]), default="")
    items = lists.get(main, [])
    if skip and items:
        total = len(items)
        del items[: min(skip, total - 1)]
        cut[main] = (total - len(items), total, total)
    notes = []
    for path in spare:
        if _size(answer) > limit and _drop(answer, path):
            notes.append(f"{path}: left out; run the command itself for it")
    while _size(answer) > limit:
        found = max((each for each in _lists(answer) if len(each[1]) > 1), key=_weight, default=None)
        if found is None:
            break
        path, items = found
        first, _, total = cut.get(path, (0, 0, len(items)))
        items.pop()
        cut[path] = (first, first + len(items), total)
    for path, (first, last, total) in cut.items():
        more = f"ask again with skip={last}" if path == main else "run the command itself"
        rest = f"; {more} for the rest" if last < total else ""
        notes.append(f"{path}: {first + 1} to {last} of {total}{rest}")
    for letters, entries in SHORTENED:
        if _size(answer) > limit:
            answer = shortened(answer, letters, entries)
            short = f"texts and lists: {letters} letters, {entries} entries; run the command itself for all of them"
            notes = [note for note in notes if not note.startswith("texts and")] + [short]
    return answer, notes


def parts_of(text: str, limit: int = MAX_PART) -> list[str]:
    """A Markdown text in parts of at most `limit` bytes as JSON, cut at line breaks, and before headings if that fits.

    >>> parts_of("# A\\n" + "a" * 30 + "\\n## B\\nb\\n", 45)
    ['# A\\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\n', '## B\\nb\\n']
    """
    parts = [""]
    for section in _sections(text):
        if parts[-1] and _size(parts[-1] + section) > limit:
            parts.append("")
        for line in [section] if _size(section) <= limit else section.splitlines(keepends=True):
            if parts[-1] and _size(parts[-1] + line) > limit:
                parts.append("")
            parts[-1] += line
    return parts


def _sections(text: str) -> list[str]:
    """The text, split before its headings."""
    return re.split(r"(?m)^(?=#{1,3} )", text)


def _size(answer: Any) -> int:
    return len(json.dumps(answer, separators=(",", ":")).encode())


def _drop(answer: dict[str, Any], path: str) -> bool:
    """Empties a list or an object, or removes a key from each entry of a list; False if there was nothing to remove."""
    name, _, key = path.partition("[].")
    if not key:
        held = answer.get(name)
        if held:
            answer[name] = type(held)()
        return bool(held)
    popped = [entry.pop(key, None) for entry in answer.get(name, ())]
    return any(popped)


def _weight(found: tuple[str, list[Any]]) -> int:
    return _size(found[1])


def _lists(value: Any, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """The lists of an answer, by path; a list nested in another belongs to its entries."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _lists(inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value:
        yield path, value
