"""The value grammar of Hydra overrides: numbers, words, quoted text, lists and mappings. No Hydra needed."""

from __future__ import annotations

import re
from typing import Any

_INT = r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)$"
_FLOAT = r"[+-]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))([eE][+-]?[0-9]+)?$"
_SPECIAL = {"inf": float("inf"), "+inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_MAX_DEPTH = 20
_LONGEST_NUMBER = 100


class _NotHydra(Exception):
    """The text is outside the grammar and stays text."""


def hydra_value(text: str) -> Any:
    """The value of `key=TEXT`; text outside the grammar stays text, as intended.

    >>> hydra_value("[a2a, 'p2p', 2, {x: null}]")
    ['a2a', 'p2p', 2, {'x': None}]
    >>> hydra_value("a2a+p2p")
    'a2a+p2p'
    """
    stripped = text.strip()
    if not stripped or stripped[0] not in "[{'\"":
        return _word(stripped)
    try:
        value, end = _value(stripped, 0, 0)
    except _NotHydra:
        return text
    return value if end == len(stripped) else text


def _word(text: str) -> Any:
    if not text:
        return ""  # Hydra reads `key=` as an empty string
    low = text.lower()
    if low in _WORDS:
        return _WORDS[low]
    if len(text) <= _LONGEST_NUMBER:
        if re.match(_INT, text):
            return int(text)
        if re.match(_FLOAT, text):
            return float(text)
    return _SPECIAL.get(low, text)


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    at = _skip(text, at)
    if at >= len(text) or depth > _MAX_DEPTH:
        raise _NotHydra
    first = text[at]
    if first in "'\"":
        return _quoted(text, at)
    if first == "[":
        return _list(text, at + 1, depth + 1)
    if first == "{":
        return _mapping(text, at + 1, depth + 1)
    end = at
    while end < len(text) and text[end] not in ",]}:[{'\"":
        end += 2 if text[end] == "\\" else 1
    if end == at:
        raise _NotHydra
    return _word(text[at:end].strip().replace("\\", "")), end


def _list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    at = _skip(text, at)
    while at < len(text) and text[at] != "]":
        item, at = _value(text, at, depth)
        items.append(item)
        at = _next(text, at, "]")
    return items, _close(text, at)


def _mapping(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    items: dict[str, Any] = {}
    at = _skip(text, at)
    while at < len(text) and text[at] != "}":
        key, at = _value(text, at, depth)
        at = _skip(text, at)
        if isinstance(key, list | dict) or at >= len(text) or text[at] != ":":
            raise _NotHydra
        items["null" if key is None else str(key)], at = _value(text, at + 1, depth)
        at = _next(text, at, "}")
    return items, _close(text, at)


def _next(text: str, at: int, end: str) -> int:
    """Past the comma to the next item, or at the closing bracket."""
    at = _skip(text, at)
    if at < len(text) and text[at] == ",":
        return _skip(text, at + 1)
    if at < len(text) and text[at] == end:
        return at
    raise _NotHydra


def _close(text: str, at: int) -> int:
    if at >= len(text):
        raise _NotHydra
    return at + 1


def _quoted(text: str, at: int) -> tuple[str, int]:
    quote = text[at]
    end = at + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" else 1
    if end >= len(text):
        raise _NotHydra
    # Backslashes before a quote, and at the end, stand for half as many, and one more for the quote itself.
    halved = re.sub(rf"(?<!\\)\\+(?={quote}|\Z)", lambda found: found[0][: len(found[0]) // 2], text[at + 1 : end])
    return halved, end + 1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\n":
        at += 1
    return at
