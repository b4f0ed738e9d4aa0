"""Checks of a caller's arguments: sequence lengths, counts of ranks and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from megatron_hcp.ground.errors import HcpError

MOST = 1 << 40
"""Longer sequences are rejected, so that sums of work stay well within the range of a double."""
MOST_RANKS = 1 << 20


def whole_of(value: Any) -> Any:
    """An int for integer types such as numpy's; anything else (a bool, a float, a string) unchanged."""
    if type(value) is int or isinstance(value, bool | float | str):
        return value
    try:
        return int(value.__index__())
    except (AttributeError, TypeError, ValueError):
        return value


def check_positive(name: str, value: object, most: int = MOST) -> int:
    """The value as an int. Raises HcpError unless it is a whole number from 1 to `most` (a bool doesn't count)."""
    number = whole_of(value)
    if type(number) is not int or not 1 <= number <= most:
        raise HcpError(f"{name}: found {value!r:.60}", wanted=f"an integer from 1 to {most}")
    return number


def check_lengths(lengths: Sequence[int], least: int = 1) -> tuple[int, ...]:
    """The lengths as ints.

    Raises HcpError if there are no sequences, or for the first whose length isn't a whole number >= least (a bool
    doesn't count).
    """
    if not len(lengths):
        raise HcpError("lengths: found no sequences", wanted="at least one")
    found = tuple(lengths)
    if set(map(type, found)) == {int} and least <= min(found) <= max(found) <= MOST:
        return found
    found = tuple(map(whole_of, found))
    for index, length in enumerate(found):
        if type(length) is not int or not least <= length <= MOST:
            raise HcpError(
                f"lengths: sequence {index} has length {length!r:.60}",
                wanted=f"a number of tokens from {least} to {MOST}",
            )
    return found
