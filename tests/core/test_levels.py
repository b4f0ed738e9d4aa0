"""The levels of a CP group: partitions that meet in one rank."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.core.levels import all_levels_of, level_groups_at, level_places_at, levels_of
from megatron_hcp.ground.errors import HcpError

sizes = st.lists(st.integers(1, 5), min_size=1, max_size=4)
strides = st.integers(1, 7)


@given(sizes, strides, st.integers(0, 100))
def test_at_every_level_the_groups_partition_the_cp_group(sizes: list[int], stride: int, start: int) -> None:
    ranks = range(start, start + prod(sizes) * stride, stride)
    levels = levels_of(ranks, sizes)
    assert len(levels) == len(sizes)
    for groups, size in zip(levels, sizes):
        assert {len(group) for group in groups} == {size}
        assert sorted(rank for group in groups for rank in group) == list(ranks)


@given(sizes, strides)
def test_the_groups_of_a_rank_meet_in_that_rank_alone(sizes: list[int], stride: int) -> None:
    ranks = range(0, prod(sizes) * stride, stride)
    for cp_rank, rank in enumerate(ranks):
        groups = [set(group) for group in level_groups_at(ranks, sizes, cp_rank)]
        for i, group in enumerate(groups):
            for other in groups[i + 1 :]:
                assert group & other == {rank}


@given(sizes, strides)
def test_the_closed_form_of_a_rank_is_its_group_in_the_list(sizes: list[int], stride: int) -> None:
    ranks = range(0, prod(sizes) * stride, stride)
    levels = levels_of(ranks, sizes)
    for cp_rank, rank in enumerate(ranks):
        expected = [next(group for group in groups if rank in group) for groups in levels]
        assert level_groups_at(ranks, sizes, cp_rank) == expected
        places = [(groups.index(group), group.index(rank)) for groups, group in zip(levels, expected)]
        assert level_places_at(sizes, cp_rank) == places


@given(sizes)
def test_members_of_an_inner_group_are_adjacent_in_the_cp_group(sizes: list[int]) -> None:
    ranks = [7 * i + 3 for i in range(prod(sizes))]
    for group in levels_of(ranks, sizes)[0]:
        first = ranks.index(group[0])
        assert list(group) == ranks[first : first + sizes[0]]


def test_levels_of_all_groups_go_cp_group_by_cp_group() -> None:
    inner, outer = all_levels_of([[0, 2, 4, 6], [1, 3, 5, 7]], [2, 2])
    assert inner == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert outer == [[0, 4], [2, 6], [1, 5], [3, 7]]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((2, 3), "hierarchical sizes [2,3] multiply to 6: wanted the cp size, 8"),
        ((), "hierarchical sizes []: wanted positive sizes, the inner (a2a) one first"),
        ((-2, -4), "hierarchical sizes [-2,-4]: wanted positive sizes, the inner (a2a) one first"),
    ],
)
def test_sizes_that_do_not_cover_the_cp_group_are_refused(sizes: tuple[int, ...], said: str) -> None:
    for call in (lambda: levels_of(range(8), sizes), lambda: level_groups_at(range(8), sizes, 0)):
        with pytest.raises(HcpError) as error:
            call()
        assert str(error.value) == said
