"""Numbers of logs. Ranks write over each other, so a text that should be a number may be none: `123.412.5`."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,18})?")
_WHOLE = re.compile(r"-?[0-9]{1,9}")


def number(text: str | None) -> float | None:
    """The value of a text of digits with at most one point; None where it is no such text.

    >>> number("400.1"), number("400.1."), number("nan"), number("9" * 5000)
    (400.1, None, None, None)
    """
    return float(text) if text is not None and _NUMBER.fullmatch(text) else None


def whole(text: str | None) -> int | None:
    """The whole number that a text states, of at most nine digits: a rank, an exit code; None where it is none.

    >>> whole("12"), whole("-9"), whole(""), whole("9" * 5000)
    (12, -9, None, None)
    """
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None
