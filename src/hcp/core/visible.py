"""What text from outside passes through before it is printed, and what shortens an answer that is too long."""

from __future__ import annotations

from typing import Any


def visible(text: str) -> str:
    r"""The text on one line, with everything that is not printable written as an escape.

    Control characters could move a terminal's cursor or start a line that a CI runner executes; bidirectional and
    invisible ones show a text that is not there; a lone surrogate stands for a byte of a file name that is not UTF-8.

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
"""Letters of a text and entries of a list, tried one after the other where a single finding is too long."""


def shortened(value: Any, letters: int, entries: int) -> Any:
    """The value with at most so many letters in each text and entries in each list."""
    if isinstance(value, str):
        return value if len(value) <= letters else value[: letters - 3] + "..."
    if isinstance(value, dict):
        return {key: shortened(item, letters, entries) for key, item in value.items()}
    return [shortened(item, letters, entries) for item in value[:entries]] if isinstance(value, list) else value
