"""The last step of a plan: no rank without work, no group wider than it has reason to be."""

from __future__ import annotations

import random

import pytest

from megatron_hcp.dcp import Setup
from megatron_hcp.dcp.cover import is_halvable, settle
from megatron_hcp.dcp.fill import fill_tightly
from megatron_hcp.dcp.workload import Packs, Workload, workload_of


def prepared(lengths: list[int], world_size: int, max_seqlen: int) -> Workload:
    return workload_of(lengths, world_size, max_seqlen, Setup())


def shape(workload: Workload, batches: list[Packs]) -> list[list[tuple[int, list[int]]]]:
    """Per micro-batch: group size and lengths, widest first."""
    return [
        sorted(((workload.sizes[g.size], [workload.length[i] for i in g.items]) for g in batch), reverse=True)
        for batch in batches
    ]


def test_a_group_of_two_sequences_that_is_too_wide_becomes_two_groups() -> None:
    workload = prepared([4000, 4000, 500, 400], 4, 4096)
    batch = [workload.group(0, [0]), workload.group(0, [1]), workload.group(1, [2, 3])]
    assert shape(workload, settle(workload, batch)) == [[(1, [4000]), (1, [4000]), (1, [500]), (1, [400])]]


def test_idle_ranks_make_the_tallest_group_wider() -> None:
    workload = prepared([4000, 1000, 900], 4, 4096)
    batch = [workload.group(0, [i]) for i in range(3)]
    assert shape(workload, settle(workload, batch)) == [[(2, [4000]), (1, [1000]), (1, [900])]]


def test_one_of_many_equal_groups_takes_an_idle_rank() -> None:
    workload = prepared([1000] * 7, 8, 4096)
    (settled,) = shape(workload, settle(workload, [workload.group(0, [i]) for i in range(7)]))
    assert settled == [(2, [1000]), *[(1, [1000])] * 6]


def test_idle_ranks_take_over_sequences_before_a_group_gets_wider_for_nothing() -> None:
    workload = prepared([1000] * 8, 7, 4096)
    batch = [workload.group(0, [i]) for i in range(4)] + [workload.group(0, [4, 5]), workload.group(0, [6, 7])]
    (settled,) = shape(workload, settle(workload, batch))
    assert settled == [(1, [1000, 1000]), *[(1, [1000])] * 6]


def test_the_fewest_tokens_are_spread_where_ranks_would_idle() -> None:
    workload = prepared([1000] * 6 + [10], 8, 4096)
    (settled,) = shape(workload, settle(workload, [workload.group(0, [i]) for i in range(7)]))
    assert settled == [(2, [10]), *[(1, [1000])] * 6]


def test_a_group_whose_padding_would_not_fit_is_not_made_wider() -> None:
    """Three sequences of one token fill one rank of three; on two ranks each pads to four."""
    workload = prepared([1, 1, 1, 1], 4, 3)
    batches = settle(workload, [workload.group(0, [0, 1, 2]), workload.group(0, [3])])
    for batch in batches:
        assert sum(workload.sizes[group.size] for group in batch) == 4
        assert all(workload.group(group.size, group.items).room >= 0 for group in batch)
    assert sorted(i for batch in batches for group in batch for i in group.items) == [0, 1, 2, 3]


@pytest.mark.slow
def test_any_groups_are_settled_into_ones_with_reason() -> None:
    """4,000 random sets of groups that fit, most of them with idle ranks or far too wide."""
    chance = random.Random(9)
    for _ in range(4000):
        world_size, most = chance.choice([1, 2, 3, 4, 6, 7, 8, 12, 16, 24]), chance.choice([2, 3, 64, 1000])
        count = chance.randint(1, 12)
        workload = prepared([chance.randint(1, most) for _ in range(count)], world_size, most)
        batch: Packs = []
        waiting, free = list(range(count)), world_size
        while waiting and free:
            size = chance.choice([k for k, width in enumerate(workload.sizes) if width <= free])
            items = waiting[: chance.randint(1, 3)]
            group = workload.group(size, items)
            if group.room < 0:
                group = workload.group(size, items[:1])
            del waiting[: len(group.items)]
            batch.append(group)
            free -= workload.sizes[size]
        placed = sorted(i for group in batch for i in group.items)
        settled = settle(workload, batch)
        assert sorted(i for some in settled for group in some for i in group.items) == placed
        for some in settled:
            tallest = max(group.height for group in some)
            assert sum(workload.sizes[group.size] for group in some) == world_size
            assert all(group.items and workload.group(group.size, group.items).room >= 0 for group in some)
            for group in some:
                if is_halvable(workload, group, tallest):
                    smaller = workload.sizes[group.size - 1]
                    idle = workload.sizes[group.size] - smaller
                    several = [g for g in some if len(g.items) > 1]
                    sizes = [smaller if g is group else workload.sizes[g.size] for g in several]
                    assert min(sizes, default=world_size) > idle, (world_size, shape(workload, settled))


def test_packing_for_room_places_what_nearly_fills_the_ranks() -> None:
    lengths = [1000, 900, 800, 700, 600, 500, 500, 400, 300, 200, 100]
    workload = prepared(lengths, 6, 1000)
    levels: list[tuple[Packs, int]] = [([], 6)]
    assert fill_tightly(workload, levels, list(range(len(lengths))))
    assert [sum(workload.length[i] for i in group.items) for group in levels[0][0]] == [1000] * 6
    assert not fill_tightly(workload, [([], 5)], list(range(len(lengths))))
