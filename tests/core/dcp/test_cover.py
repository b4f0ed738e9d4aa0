"""The last step of a plan: no rank without work, no group wider than it has reason to be."""

from __future__ import annotations

import random

from hcp.core.dcp import DEFAULT_COST, usable_sizes
from hcp.core.dcp.cover import is_halvable, settle
from hcp.core.dcp.fill import fill_tightly
from hcp.core.dcp.problem import MicroBatch, Problem, build_problem


def problem_of(lengths: list[int], world_size: int, max_seqlen: int) -> Problem:
    return build_problem(lengths, world_size, max_seqlen, usable_sizes(world_size), DEFAULT_COST, 1)


def shape(problem: Problem, batches: list[MicroBatch]) -> list[list[tuple[int, list[int]]]]:
    """Per micro-batch: group size and lengths, widest first."""
    return [
        sorted(((problem.sizes[g.size], [problem.length[i] for i in g.items]) for g in batch), reverse=True)
        for batch in batches
    ]


def test_a_group_of_two_sequences_that_is_too_wide_becomes_two_groups() -> None:
    problem = problem_of([4000, 4000, 500, 400], 4, 4096)
    batch = [problem.group(0, [0]), problem.group(0, [1]), problem.group(1, [2, 3])]
    assert shape(problem, settle(problem, batch)) == [[(1, [4000]), (1, [4000]), (1, [500]), (1, [400])]]


def test_idle_ranks_make_the_tallest_group_wider() -> None:
    problem = problem_of([4000, 1000, 900], 4, 4096)
    batch = [problem.group(0, [i]) for i in range(3)]
    assert shape(problem, settle(problem, batch)) == [[(2, [4000]), (1, [1000]), (1, [900])]]


def test_equal_groups_merge_when_widening_one_would_be_for_nothing() -> None:
    problem = problem_of([1000] * 7, 8, 4096)
    (settled,) = shape(problem, settle(problem, [problem.group(0, [i]) for i in range(7)]))
    assert settled == [(4, [1000] * 3), *[(1, [1000])] * 4]


def test_a_group_whose_padding_would_not_fit_is_not_made_wider() -> None:
    """Three sequences of one token fill one rank of three; on two ranks each pads to four."""
    problem = problem_of([1, 1, 1, 1], 4, 3)
    batches = settle(problem, [problem.group(0, [0, 1, 2]), problem.group(0, [3])])
    for batch in batches:
        assert sum(problem.sizes[group.size] for group in batch) == 4
        assert all(problem.group(group.size, group.items).room >= 0 for group in batch)
    assert sorted(i for batch in batches for group in batch for i in group.items) == [0, 1, 2, 3]


def test_any_groups_are_settled_into_ones_with_reason() -> None:
    """4,000 random sets of groups that fit, most of them with idle ranks or far too wide."""
    chance = random.Random(9)
    for _ in range(4000):
        world_size, most = chance.choice([1, 2, 3, 4, 6, 7, 8, 12, 16, 24]), chance.choice([2, 3, 64, 1000])
        count = chance.randint(1, 12)
        problem = problem_of([chance.randint(1, most) for _ in range(count)], world_size, most)
        batch: MicroBatch = []
        waiting, free = list(range(count)), world_size
        while waiting and free:
            size = chance.choice([k for k, width in enumerate(problem.sizes) if width <= free])
            items = waiting[: chance.randint(1, 3)]
            group = problem.group(size, items)
            if group.room < 0:
                group = problem.group(size, items[:1])
            del waiting[: len(group.items)]
            batch.append(group)
            free -= problem.sizes[size]
        placed = sorted(i for group in batch for i in group.items)
        settled = settle(problem, batch)
        assert sorted(i for some in settled for group in some for i in group.items) == placed
        for some in settled:
            tallest = max(group.height for group in some)
            assert sum(problem.sizes[group.size] for group in some) == world_size
            assert all(group.items and problem.group(group.size, group.items).room >= 0 for group in some)
            assert not any(is_halvable(problem, group, tallest) for group in some)


def test_packing_for_room_places_what_nearly_fills_the_ranks() -> None:
    lengths = [1000, 900, 800, 700, 600, 500, 500, 400, 300, 200, 100]
    problem = problem_of(lengths, 6, 1000)
    levels: list[tuple[MicroBatch, int]] = [([], 6)]
    assert fill_tightly(problem, levels, list(range(len(lengths))))
    assert [sum(problem.length[i] for i in group.items) for group in levels[0][0]] == [1000] * 6
    assert not fill_tightly(problem, [([], 5)], list(range(len(lengths))))
