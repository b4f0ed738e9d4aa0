"""Whole numbers in untrusted text: with a bounded number of digits."""

from __future__ import annotations

MOST_DIGITS = 18


def whole_number(text: str, most_digits: int = MOST_DIGITS) -> int | None:
    """The whole number in a text, with a sign or underscores as people write them; None if it isn't one.

    Only ASCII digits: what looks like a number in another script is most likely a copying mistake.

    >>> whole_number("131_072"), whole_number("-1"), whole_number("1.5"), whole_number("9" * 5000)
    (131072, -1, None, None)
    """
    if len(text) > 4 * most_digits:
        return None
    digits = text.strip().replace("_", "")
    sign = digits[:1] in ("+", "-")
    if not (digits[sign:].isascii() and digits[sign:].isdecimal()) or len(digits) - sign > most_digits:
        return None
    return int(digits)
