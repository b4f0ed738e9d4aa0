"""Whole numbers and time limits in untrusted text: with a bounded number of digits."""

from __future__ import annotations

import re

MOST_DIGITS = 18
_TIME_LIMIT = r"(?a)(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,2}))?(?::(\d{1,2}))?\Z"


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


def time_limit_s(text: str) -> int | None:
    """Seconds of a Slurm time limit: MIN, MIN:SEC, H:MIN:SEC, D-H, D-H:MIN or D-H:MIN:SEC; None if it isn't one.

    Source: time_str2secs in parse_time.c of Slurm.

    >>> time_limit_s("30"), time_limit_s("1:30:00"), time_limit_s("2-12"), time_limit_s("UNLIMITED")
    (1800, 5400, 216000, None)
    """
    match = re.match(_TIME_LIMIT, text)
    if match is None:
        return None
    days, *written = match.groups()
    parts = [int(part) for part in written if part is not None]
    if days is None and len(parts) < 3:
        parts = [0, *parts]
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
