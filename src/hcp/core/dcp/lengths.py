"""Checks of what a caller gives: lengths of sequences, counts of ranks and tokens."""

from __future__ import annotations

from collections.abc import Sequence

from hcp.core.errors import HcpError

MOST = 1 << 40
"""Longer sequences are refused, so that sums of work stay far from the end of a double."""
MOST_RANKS = 1 << 20


def check_positive(name: str, value: object, most: int = MOST) -> None:
    """Raises HcpError unless value is an int from 1 to `most` (a bool is none)."""
    if type(value) is not int or not 1 <= value <= most:
        raise HcpError(f"{name}: found {value!r:.60}, wanted an integer from 1 to {most}")


def check_lengths(lengths: Sequence[int], least: int = 1) -> None:
    """Raises HcpError for no sequences, or naming the first whose length is no int >= least (a bool is none)."""
    if not lengths:
        raise HcpError("lengths: found no sequences, wanted at least one")
    for index, length in enumerate(lengths):
        if type(length) is not int or not least <= length <= MOST:
            raise HcpError(
                f"lengths: sequence {index} has length {length!r:.60}, wanted a number of tokens from {least} to {MOST}"
            )
