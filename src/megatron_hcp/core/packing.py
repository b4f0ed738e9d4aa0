"""Packed batches: where a row's sequences are, which tokens each context-parallel rank gets, and what is lost.

`cu_seqlens` counts real tokens, `cu_seqlens_padded` the tokens as laid out in memory; both start at 0 and have one
entry more than there are sequences, as Transformer Engine expects. Which chunks a rank holds is `core.shards`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from megatron_hcp.core.shards import cu_seqlens_of, round_up
from megatron_hcp.ground.errors import HcpError


class Boundaries(NamedTuple):
    """The sequences of a packed row: [n + 1] each, in tokens."""

    cu_seqlens: list[int]
    cu_seqlens_padded: list[int]


class Misplaced(NamedTuple):
    """Positions of a row that no rank gets, and positions that several ranks, or one rank twice, get. Ascending."""

    lost: list[int]
    doubled: list[int]


def pack_row(seqlens: Iterable[int], multiple: int = 1, row: int | None = None) -> Boundaries:
    """The boundaries of sequences that are each padded to a multiple, and laid one after another.

    Args:
        seqlens: real tokens of each sequence.
        multiple: what each padded length is a multiple of (`shards.pad_multiple`).
        row: tokens of the whole row; what the sequences leave free becomes one more sequence without real tokens,
            as Megatron-Bridge fills a row.

    >>> pack_row([10, 22], 4, row=40)
    Boundaries(cu_seqlens=[0, 10, 32, 32], cu_seqlens_padded=[0, 12, 36, 40])

    Raises:
        HcpError: the padded sequences are longer than the row.
    """
    real = list(seqlens)
    padded = [round_up(length, multiple) for length in real]
    if row is not None and sum(padded) > row:
        raise HcpError(
            f"sequences of {sum(padded)} padded tokens in a row of {row}",
            wanted="at most the row",
            do="pack fewer of them",
        )
    if row is not None and sum(padded) < row:
        real, padded = [*real, 0], [*padded, row - sum(padded)]
    return Boundaries(cu_seqlens_of(real), cu_seqlens_of(padded))


def partition_as_compiled(cu_seqlens: Sequence[int], total: int, cp_rank: int, cp_size: int) -> list[int]:
    """What Transformer Engine's compiled kernel gives a rank, for any lengths: [total // cp].

    The kernel uses integer division on boundaries and lengths and checks the multiple of 2·cp in a device assertion,
    which release builds compile out. Equal to `shards.shard_thd_indices` where every length is such a multiple. Source:
    transformer-engine, transformer_engine/common/fused_attn/context_parallel.cu, thd_partition_indices_kernel.

    >>> partition_as_compiled([0, 10, 32], 32, 0, 2)[:5]
    [0, 1, 6, 7, 8]
    """
    local = [boundary // cp_size for boundary in cu_seqlens]
    rows = []
    for token in range(total // cp_size):
        sequence = min(bisect_right(local, token), len(local) - 1) - 1
        length = local[sequence + 1] - local[sequence]
        index = token - local[sequence]
        chunk = cp_rank if index < length // 2 else 2 * (cp_size - 1) - cp_rank
        rows.append(index + local[sequence] * cp_size + length // 2 * chunk)
    return rows


def misplaced(cu_seqlens: Sequence[int], cp_size: int) -> Misplaced:
    """The tokens that Transformer Engine loses and duplicates if a length isn't a multiple of 2·cp.

    >>> misplaced([0, 10, 32], 2)
    Misplaced(lost=[9, 31], doubled=[6, 25])
    >>> misplaced([0, 12, 36], 2)
    Misplaced(lost=[], doubled=[])
    """
    total = cu_seqlens[-1]
    held = Counter(
        index for cp_rank in range(cp_size) for index in partition_as_compiled(cu_seqlens, total, cp_rank, cp_size)
    )
    return Misplaced(
        [index for index in range(total) if index not in held],
        sorted(index for index, times in held.items() if times > 1),
    )


def lengths_of(boundaries: Sequence[int]) -> list[int]:
    """The length of each sequence between its boundaries.

    >>> lengths_of([0, 4, 12])
    [4, 8]
    """
    return [end - start for start, end in pairwise(boundaries)]
