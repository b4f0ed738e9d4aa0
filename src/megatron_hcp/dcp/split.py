"""The splitting of verl pull request #5869: one group size for a whole micro-batch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from megatron_hcp.dcp.lengths import MOST_RANKS, check_lengths, check_positive
from megatron_hcp.ground.errors import HcpError


class Split(NamedTuple):
    """What one micro-batch becomes: groups of `local_cp_size` consecutive ranks, `dp_size` of them.

    `samples[g]` is the range of sequences that all ranks of group g share.
    """

    local_cp_size: int
    dp_size: int
    samples: tuple[range, ...]


def split_pr5869(lengths: Sequence[int], world_size: int, max_seqlen_per_rank: int) -> Split:
    """Splits one micro-batch as `dynamic_cp_split_batch` of verl pull request #5869 does, where that is valid.

    C is the larger of what the longest sequence needs, ceil(longest / M), and what leaves no group without a sequence,
    ceil(W / n), each rounded up to a power of two. Group g of D = W / C takes n // D consecutive sequences, the first n
    % D groups one more. Lengths may be 0, as there; tokens per group are not bounded, as there.

    Raises HcpError where the original silently uses a smaller C than it computed (C > W), leaves the last W % C ranks
    without a group, or crashes (no sequences, no M). Source: verl, verl/utils/megatron_utils.py, dynamic_cp_split_batch
    at ed30917fd.

    >>> split_pr5869([2000] * 10, 8, 1024)
    Split(local_cp_size=2, dp_size=4, samples=(range(0, 3), range(3, 6), range(6, 8), range(8, 10)))
    """
    world_size = check_positive("world_size", world_size, MOST_RANKS)
    max_seqlen_per_rank = check_positive("max_seqlen_per_rank", max_seqlen_per_rank)
    lengths = check_lengths(lengths, least=0)
    longest, count = max(lengths), len(lengths)
    needed = _power_of_two(-(-longest // max_seqlen_per_rank))
    covering = _power_of_two(-(-world_size // count))
    size = max(needed, covering)
    if size > world_size:
        if needed > world_size:
            worst = lengths.index(longest)
            raise HcpError(
                f"policy pr5869: sequence {worst} has {longest} tokens and needs {needed} ranks of at most "
                f"{max_seqlen_per_rank} tokens, found {world_size}",
                do=f"raise max_seqlen to {-(-longest // _floor(world_size))}",
            )
        raise HcpError(
            f"policy pr5869: {count} sequences on {world_size} ranks call for groups of {size}",
            do="use a power of two for world_size, or policy balanced",
        )
    if world_size % size:
        raise HcpError(
            f"policy pr5869: groups of {size} would leave {world_size % size} of {world_size} ranks without a group",
            do="use a power of two for world_size, or policy balanced",
        )
    num_groups = world_size // size
    quotient, remainder = divmod(count, num_groups)
    starts = [group * quotient + min(group, remainder) for group in range(num_groups + 1)]
    return Split(size, num_groups, tuple(range(a, b) for a, b in itertools.pairwise(starts)))


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()


def _floor(count: int) -> int:
    return 1 << (count.bit_length() - 1)
