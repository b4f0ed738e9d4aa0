"""Packed rows: every token is somewhere, no row overflows, and few rows are needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.core.pack_plan import BINS, best_of, pack_sizes, plan_rows
from megatron_hcp.core.shards import round_up
from megatron_hcp.ground.errors import HcpError

lengths = st.lists(st.integers(1, 70), min_size=1, max_size=60)


@given(lengths, st.integers(1, 8), st.integers(1, 12))
def test_every_place_of_every_row_is_a_token_padding_or_unused(real: list[int], multiple: int, rows_of: int) -> None:
    size = multiple * rows_of
    plan = plan_rows(real, size, multiple)
    fitting = [length for length in real if round_up(length, multiple) <= size]
    assert (plan.sequences, plan.tokens) == (len(fitting), sum(fitting))
    assert (plan.lost_sequences, plan.lost_tokens) == (len(real) - len(fitting), sum(real) - sum(fitting))
    assert plan.padding == sum(round_up(length, multiple) - length for length in fitting)
    assert plan.tokens + plan.padding + plan.unused == plan.rows * size
    assert sum(plan.fullness) == plan.rows and len(plan.fullness) == BINS


@given(lengths)
def test_rows_are_at_most_eleven_ninths_and_one_of_the_fewest_possible(real: list[int]) -> None:
    plan = plan_rows(real, 70)
    longer_than_half = sum(length > 35 for length in real)
    fewest = max(-(-sum(real) // 70), longer_than_half)
    assert fewest <= plan.rows <= fewest * 22 / 9 + 1  # twice the bound by volume is what best fit guarantees
    assert plan.most_sequences <= 70 // min(real)


def test_sequences_are_put_together_where_they_fill_a_row() -> None:
    plan = plan_rows([60, 40, 30, 20, 10, 5] * 2, 100)
    assert (plan.rows, plan.unused, plan.most_sequences) == (4, 4 * 100 - 2 * 165, 4)
    assert plan.micro_batches(3) == 2


def test_a_row_that_is_no_multiple_is_refused() -> None:
    with pytest.raises(HcpError) as error:
        plan_rows([10], 100, 8)
    assert str(error.value) == "rows of 100 tokens; wanted a multiple of 8, like sequences; use 104"


def test_the_shortest_rows_that_waste_little_are_best() -> None:
    plans = [plan_rows([1000] * 999, size, 8) for size in pack_sizes(1000, 8, 8192)]
    assert [plan.pack_size for plan in plans] == [1000, 1024, 2048, 4096, 8192]
    assert best_of(plans).pack_size == 1000
    assert best_of([plan_rows([600] * 64, size, 8) for size in (512, 1024, 4096)]).pack_size == 4096
