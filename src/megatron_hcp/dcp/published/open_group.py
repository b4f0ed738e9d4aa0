"""A group of ranks while a published scheduler fills it."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.ground.errors import HcpError

Batches = list[list[tuple[int, list[int]]]]
"""[micro-batch][group]: its size and its sequences; the groups of a micro-batch are adjacent, from rank 0 on."""


class OpenGroup:
    """Ranks that share sequences: `load` is the work of each, `tokens` what each holds."""

    __slots__ = ("load", "samples", "size", "tokens")

    def __init__(self, size: int) -> None:
        self.size = size
        self.load = 0.0
        self.tokens = 0.0
        self.samples: list[int] = []


def smallest_power(length: int, max_seqlen: int) -> int:
    """The smallest power of two of ranks that holds the sequence.

    >>> smallest_power(1024, 1024), smallest_power(1025, 1024), smallest_power(3 * 1024, 1024)
    (1, 2, 4)
    """
    return 1 << max(0, -(-length // max_seqlen) - 1).bit_length()


def check_need(lengths: Sequence[int], world_size: int, max_seqlen: int, policy: str) -> None:
    """Raises HcpError if the longest sequence needs a larger power of two of ranks than there are."""
    worst = max(range(len(lengths)), key=lengths.__getitem__)
    needed = smallest_power(lengths[worst], max_seqlen)
    if needed > world_size:
        raise HcpError(
            f"policy {policy}: sequence {worst} has {lengths[worst]} tokens and needs {needed} ranks of at most "
            f"{max_seqlen} tokens, found {world_size}",
            do="raise max_seqlen or world_size",
        )


def cannot_widen(policy: str, world_size: int) -> HcpError:
    """The error if upstream's scheduler fails to give every rank work: its list index is out of range."""
    return HcpError(
        f"policy {policy}: the scheduler fails on {world_size} ranks, because doubling a group takes more ranks than "
        "are idle",
        do="use a power of two for world_size",
    )
