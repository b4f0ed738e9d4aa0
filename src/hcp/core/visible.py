"""The one function through which text from outside passes before it is printed."""

from __future__ import annotations


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
