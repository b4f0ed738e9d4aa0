"""Which rows of a rank are tokens and which are padding: a group's packed sequences, as each layout splits them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from megatron_hcp.core.shards import shard_ranges
from megatron_hcp.dcp.lengths import check_positive
from megatron_hcp.dcp.setup import Setup
from megatron_hcp.ground.errors import HcpError

DEFAULT_SETUP = Setup()


def padded_lengths(lengths: Sequence[int], cp_size: int, setup: Setup = DEFAULT_SETUP) -> list[int]:
    """Tokens of each sequence of a group after padding, over all its ranks: `setup.padded`, and min_local_rows.

    If a rank would have fewer rows than min_local_rows, the last sequence is padded further. Source:
    verl/utils/dynamic_cp_scheduler.py, _local_padding_mask.

    >>> padded_lengths([5, 3], 2), padded_lengths([5, 3], 2, Setup(layout="contiguous", min_local_rows=8))
    ([8, 4], [6, 10])
    """
    padded = [setup.padded(length, cp_size) for length in lengths]
    padded[-1] += max(0, cp_size * setup.min_local_rows - sum(padded))
    return padded


def local_runs(
    lengths: Sequence[int], cp_size: int, cp_rank: int, setup: Setup = DEFAULT_SETUP
) -> list[tuple[int, int]]:
    """This rank's rows in order, as alternating runs: (tokens, padding), ….

    >>> local_runs([5], 2, 0), local_runs([5], 2, 1), local_runs([5, 1], 2, 1, Setup(layout="contiguous"))
    ([(2, 0), (0, 2)], [(2, 0), (1, 1)], [(1, 1), (1, 1)])

    Raises:
        HcpError: there is no such rank.
    """
    check_positive("local_cp_size", cp_size)
    if not 0 <= cp_rank < cp_size:
        raise HcpError(f"cp_rank: found {cp_rank}", wanted=f"0 to {cp_size - 1}")
    padded = padded_lengths(lengths, cp_size, setup)
    cut = _zigzag(padded, cp_size, cp_rank) if setup.layout == "zigzag" else _contiguous(padded, cp_size, cp_rank)
    return [_tokens_in(lengths[sequence], places) for sequence, places in cut]


def _zigzag(padded: Sequence[int], cp_size: int, cp_rank: int) -> Iterator[tuple[int, range]]:
    """(sequence, positions in it) that the rank holds."""
    for sequence, size in enumerate(padded):
        for places in shard_ranges(size, cp_rank, cp_size):
            if places:
                yield sequence, places


def _contiguous(padded: Sequence[int], cp_size: int, cp_rank: int) -> Iterator[tuple[int, range]]:
    rows = sum(padded) // cp_size
    first, start = cp_rank * rows, 0
    for sequence, size in enumerate(padded):
        places = range(max(0, first - start), min(size, first + rows - start))
        if places:
            yield sequence, places
        start += size


def _tokens_in(length: int, places: range) -> tuple[int, int]:
    tokens = max(0, min(length - places.start, len(places)))
    return tokens, len(places) - tokens
