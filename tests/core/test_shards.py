"""Zigzag shards: every token on exactly one rank, and back."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.core.shards import (
    cu_seqlens_of,
    pad_multiple,
    shard_indices,
    shard_ranges,
    shard_thd_indices,
    unshard_indices,
    unshard_thd_indices,
)
from megatron_hcp.ground.errors import HcpError

cp_sizes = st.integers(1, 9)


@st.composite
def packed(draw: st.DrawFn) -> tuple[list[int], int]:
    cp_size = draw(cp_sizes)
    units = draw(st.lists(st.integers(0, 8), max_size=6))
    return cu_seqlens_of([unit * pad_multiple(cp_size) for unit in units]), cp_size


@given(packed())
def test_shards_of_a_packed_batch_partition_its_tokens(case: tuple[list[int], int]) -> None:
    cu_seqlens, cp_size = case
    shards = [shard_thd_indices(cu_seqlens, cp_rank, cp_size) for cp_rank in range(cp_size)]
    assert sorted(index for shard in shards for index in shard) == list(range(cu_seqlens[-1]))
    assert {len(shard) for shard in shards} == {cu_seqlens[-1] // cp_size}


@given(packed())
def test_unshard_after_shard_is_the_identity(case: tuple[list[int], int]) -> None:
    cu_seqlens, cp_size = case
    full = [f"token {i}" for i in range(cu_seqlens[-1])]
    joined = [full[index] for cp_rank in range(cp_size) for index in shard_thd_indices(cu_seqlens, cp_rank, cp_size)]
    assert [joined[place] for place in unshard_thd_indices(cu_seqlens, cp_size)] == full


@given(st.integers(2, 9), st.integers(1, 20))
def test_the_zigzag_gives_each_rank_the_same_causal_work(cp_size: int, chunk: int) -> None:
    seqlen = 2 * cp_size * chunk
    works = {sum(index + 1 for index in shard_indices(seqlen, cp_rank, cp_size)) for cp_rank in range(cp_size)}
    assert len(works) == 1


@given(packed())
def test_a_packed_shard_is_the_shards_of_its_sequences(case: tuple[list[int], int]) -> None:
    cu_seqlens, cp_size = case
    for cp_rank in range(cp_size):
        expected: list[int] = []
        for start, end in pairwise(cu_seqlens):
            expected += [start + index for index in shard_indices(end - start, cp_rank, cp_size)]
        assert shard_thd_indices(cu_seqlens, cp_rank, cp_size) == expected


@given(st.integers(1, 8), st.integers(1, 8), st.booleans())
def test_a_padded_length_is_cut_evenly_by_zigzag_and_by_sequence_parallelism(
    cp_size: int, tp_size: int, is_sequence_parallel: bool
) -> None:
    multiple = pad_multiple(cp_size, tp_size, is_sequence_parallel)
    padded = 3 * multiple
    shards = [shard_ranges(padded, cp_rank, cp_size) for cp_rank in range(cp_size)]
    assert all(cp_size == 1 or len(early) == len(late) for early, late in shards)
    if is_sequence_parallel:
        assert all((len(early) + len(late)) % tp_size == 0 for early, late in shards)


def test_rank_r_holds_chunk_r_and_its_mirror() -> None:
    assert [shard_indices(8, cp_rank, 4) for cp_rank in range(4)] == [[0, 7], [1, 6], [2, 5], [3, 4]]
    assert unshard_indices(8, 4) == [0, 2, 4, 6, 7, 5, 3, 1]


def test_one_odd_sequence_in_a_batch_is_refused_though_the_total_fits() -> None:
    # Transformer Engine checks the total only: at cp 2, [0, 10, 32] loses two tokens and doubles two.
    with pytest.raises(HcpError) as error:
        shard_thd_indices([0, 10, 32], 0, 2)
    assert str(error.value) == "sequence length 10 is not a multiple of 2 x cp = 4: pad it to 12"
