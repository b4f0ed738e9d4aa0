"""Chooses the sequences that represent a data set with too many of them."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.ground.errors import HcpError

MAX_SEQUENCES = 1_000_000
MAX_LENGTH = 10**12
"""Maximum tokens of a sequence: more than any has, and small enough to count with."""


def taken(count: int, take: int | None, name: str) -> range | list[int]:
    """Evenly spread positions of `take` out of `count` sequences; all of them if there are no more.

    Raises HcpError if more than MAX_SEQUENCES would be taken.

    >>> list(taken(10, 4, "x")), list(taken(3, 4, "x"))
    ([0, 2, 5, 7], [0, 1, 2])
    """
    wanted = count if take is None else min(count, take)
    if wanted > MAX_SEQUENCES:
        raise HcpError(
            f"{name}: {wanted:,} sequences, more than {MAX_SEQUENCES:,}", do="use those of one step with --take N"
        )
    return range(count) if wanted == count else [i * count // wanted for i in range(wanted)]


def spread(values: Sequence[int], take: int | None) -> Sequence[int]:
    """The values at the positions that are `taken`."""
    return values if take is None else [values[i] for i in taken(len(values), take, "")]
