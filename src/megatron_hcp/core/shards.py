"""Which tokens each context-parallel rank holds: the zigzag, per sequence and per packed batch.

The zigzag balances causal attention: a sequence is split into 2·cp equal chunks and rank r holds chunks r and 2·cp−1−r.
Under hierarchical CP the same r is the rank in the whole CP group, not in a level. Source: megatron-core,
megatron/core/utils.py, get_batch_on_this_cp_rank; transformer-engine,
transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, get_thd_partitioned_indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import lcm

from megatron_hcp.ground.errors import HcpError


def pad_multiple(cp_size: int, tp_size: int = 1, is_sequence_parallel: bool = False) -> int:
    """The multiple that each sequence length is padded to, in tokens: lcm(2·cp, cp·tp with sequence parallelism).

    Without context parallelism only sequence parallelism requires a multiple: tp.

    >>> pad_multiple(4), pad_multiple(4, 8, True), pad_multiple(1, 8, True), pad_multiple(1)
    (8, 32, 8, 1)
    """
    zigzag = 2 * cp_size if cp_size > 1 else 1
    return lcm(zigzag, cp_size * tp_size) if is_sequence_parallel else zigzag


def round_up(length: int, multiple: int) -> int:
    """The next multiple at or above the length.

    >>> round_up(10, 4), round_up(12, 4)
    (12, 12)
    """
    return -(-length // multiple) * multiple


def cu_seqlens_of(seqlens: Sequence[int]) -> list[int]:
    """The boundaries of packed sequences, from 0 to the total: one more entry than lengths.

    >>> cu_seqlens_of([4, 8])
    [0, 4, 12]
    """
    return list(accumulate(seqlens, initial=0))


def shard_ranges(seqlen: int, cp_rank: int, cp_size: int) -> tuple[range, range]:
    """The two runs of positions that a rank holds of one sequence, the earlier first.

    >>> shard_ranges(16, 1, 4)
    (range(2, 4), range(12, 14))

    Raises:
        HcpError: the length isn't a multiple of 2·cp (for cp 1 any length is fine).
    """
    assert 0 <= cp_rank < cp_size, (cp_rank, cp_size)
    if cp_size == 1:
        return range(seqlen), range(seqlen, seqlen)
    chunk = _chunk(seqlen, cp_size)
    mirrored = 2 * cp_size - 1 - cp_rank
    return range(cp_rank * chunk, (cp_rank + 1) * chunk), range(mirrored * chunk, (mirrored + 1) * chunk)


def shard_indices(seqlen: int, cp_rank: int, cp_size: int) -> list[int]:
    """The positions that a rank holds of one sequence, in the order in which it holds them: [seqlen / cp].

    >>> shard_indices(8, 0, 2)
    [0, 1, 6, 7]
    """
    early, late = shard_ranges(seqlen, cp_rank, cp_size)
    return [*early, *late]


def shard_thd_indices(cu_seqlens_padded: Sequence[int], cp_rank: int, cp_size: int) -> list[int]:
    """The positions that a rank holds of a packed batch (thd), sequence by sequence: [total / cp].

    Each sequence is split separately, so each padded length must be a multiple of 2·cp; it isn't enough that the total
    is (Transformer Engine then loses some tokens and duplicates others).

    >>> shard_thd_indices([0, 4, 12], 0, 2)
    [0, 3, 4, 5, 10, 11]

    Raises:
        HcpError: a sequence's padded length is no multiple of 2·cp.
    """
    indices: list[int] = []
    for start, end in pairwise(cu_seqlens_padded):
        for part in shard_ranges(end - start, cp_rank, cp_size):
            indices.extend(range(start + part.start, start + part.stop))
    return indices


def unshard_indices(seqlen: int, cp_size: int) -> list[int]:
    """Where each position of a sequence is in the shards laid end to end: full[i] = joined[unshard_indices[i]].

    >>> unshard_indices(8, 2)
    [0, 1, 4, 5, 6, 7, 2, 3]
    """
    return unshard_thd_indices((0, seqlen), cp_size)


def unshard_thd_indices(cu_seqlens_padded: Sequence[int], cp_size: int) -> list[int]:
    """The same for a packed batch: full[i] = joined[unshard_thd_indices[i]], [total].

    >>> unshard_thd_indices([0, 4, 8], 2)
    [0, 4, 5, 1, 2, 6, 7, 3]
    """
    joined = [index for cp_rank in range(cp_size) for index in shard_thd_indices(cu_seqlens_padded, cp_rank, cp_size)]
    inverse = [0] * len(joined)
    for place, index in enumerate(joined):
        inverse[index] = place
    return inverse


def _chunk(seqlen: int, cp_size: int) -> int:
    chunk, rest = divmod(seqlen, 2 * cp_size)
    if rest:
        raise HcpError(
            f"sequence length {seqlen} is not a multiple of 2 x cp = {2 * cp_size}:",
            do=f"pad it to {seqlen - rest + 2 * cp_size}",
        )
    return chunk
