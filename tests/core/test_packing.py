"""Packed rows: padded boundaries, positions, and the tokens that Transformer Engine's kernel loses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.core.packing import (
    lengths_of,
    misplaced,
    pack_row,
    partition_as_compiled,
)
from megatron_hcp.core.shards import cu_seqlens_of, pad_multiple, shard_thd_indices
from megatron_hcp.ground.errors import HcpError

lengths = st.lists(st.integers(1, 40), min_size=1, max_size=6)
sizes = st.integers(1, 6)


@given(lengths, sizes, st.integers(0, 30))
def test_each_padded_length_is_the_next_multiple_and_real_tokens_are_kept(
    real: list[int], cp_size: int, free: int
) -> None:
    multiple = pad_multiple(cp_size)
    row = pack_row(real, multiple)
    assert lengths_of(row.cu_seqlens) == real
    for length, padded in zip(real, lengths_of(row.cu_seqlens_padded), strict=True):
        assert padded % multiple == 0 and 0 <= padded - length < multiple
    filled = pack_row(real, multiple, row.cu_seqlens_padded[-1] + free)
    assert filled.cu_seqlens_padded[-1] == row.cu_seqlens_padded[-1] + free
    assert filled.cu_seqlens[-1] == sum(real)
    assert len(filled.cu_seqlens) == len(filled.cu_seqlens_padded)


def test_sequences_longer_than_their_row_are_refused() -> None:
    with pytest.raises(HcpError) as error:
        pack_row([10, 10], 4, row=20)
    assert str(error.value).startswith("sequences of 24 padded tokens in a row of 20; wanted")


@given(lengths, sizes)
def test_the_kernel_and_the_zigzag_agree_where_lengths_are_padded(real: list[int], cp_size: int) -> None:
    cu_seqlens = pack_row(real, pad_multiple(cp_size)).cu_seqlens_padded
    for cp_rank in range(cp_size):
        expected = shard_thd_indices(cu_seqlens, cp_rank, cp_size)
        if cp_size > 1:
            assert partition_as_compiled(cu_seqlens, cu_seqlens[-1], cp_rank, cp_size) == expected
    assert cp_size == 1 or misplaced(cu_seqlens, cp_size) == ([], [])


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(2, 4))
def test_tokens_are_lost_or_doubled_only_where_a_length_does_not_divide(real: list[int], cp_size: int) -> None:
    real[-1] += -sum(real) % (2 * cp_size)  # Transformer Engine checks the total
    found = misplaced(cu_seqlens_of(real), cp_size)
    assert found == ([], []) or any(length % (2 * cp_size) for length in real)


def test_two_tokens_are_lost_of_two_sequences_whose_total_alone_divides() -> None:
    # The map of thd_partition_indices_kernel, by hand: chunks of 5 // 2 and 11 // 2 tokens.
    assert misplaced([0, 10, 32], 2) == ([9, 31], [6, 25])
    assert misplaced(pack_row([10, 22], 4).cu_seqlens_padded, 2) == ([], [])
