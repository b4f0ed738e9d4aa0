"""Escapes untrusted text before it is printed, and shortens answers that are too long."""

from __future__ import annotations

from typing import Any


def visible(text: str) -> str:
    r"""The text on one line, with everything that is not printable written as an escape.

    Control characters could move a terminal's cursor or start a line that a CI runner executes; bidirectional and
    invisible ones misrepresent the text; a lone surrogate represents a non-UTF-8 byte of a file name.

    >>> visible("p2p\n::error::x \x1b[2J")
    'p2p\\n::error::x \\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(letter: str) -> str:
    code = ord(letter)
    if letter in _NAMED:
        return _NAMED[letter]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


SHORTENED = ((200, 8), (100, 4), (50, 2), (25, 1))
"""Limits on characters per text and entries per list, tried in turn if a single finding is too long."""


def shortened(value: Any, letters: int, entries: int) -> Any:
    """The value with at most this many characters per text and entries per list."""
    if isinstance(value, str):
        return value if len(value) <= letters else value[: letters - 3] + "..."
    if isinstance(value, dict):
        return {key: shortened(item, letters, entries) for key, item in value.items()}
    return [shortened(item, letters, entries) for item in value[:entries]] if isinstance(value, list) else value
