"""Two layouts of one job are tied where their terms trade against each other, not where one only adds."""

from __future__ import annotations

from dataclasses import replace

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.constants import rates_of
from megatron_hcp.plan.time.margin import SPREADS, is_tied

RATES = replace(rates_of(gpu_named("h100"), "bf16", {}), margin_scale=1.0)
FASTEST = {"gemm": 10.0, "tp": 2.0, "cp": 0.0}


def test_a_layout_that_only_adds_to_a_term_is_slower_however_uncertain_the_term() -> None:
    assert not is_tied(RATES, FASTEST, {**FASTEST, "tp": 3.0}, 0.0)
    assert is_tied(RATES, FASTEST, {**FASTEST, "tp": 3.0}, 0.1)  # but for what is within a tenth anyway


def test_a_layout_that_trades_one_uncertain_term_for_another_is_tied() -> None:
    traded = {"gemm": 10.0, "tp": 0.0, "cp": 2.5}
    assert SPREADS["tp"] * 2.0 > 0.5  # what is told of the first term alone is less than the difference
    assert is_tied(RATES, FASTEST, traded, 0.0) and is_tied(RATES, traded, FASTEST, 0.0)
    assert not is_tied(RATES, FASTEST, {**traded, "cp": 4.0}, 0.0)


def test_a_wider_margin_tells_fewer_layouts_apart() -> None:
    traded = {"gemm": 10.0, "tp": 0.0, "cp": 4.0}
    assert is_tied(replace(RATES, margin_scale=2.0), FASTEST, traded, 0.0)


def test_what_both_layouts_have_of_a_term_is_no_reason_for_a_tie() -> None:
    much = {**FASTEST, "host": 100.0}
    assert not is_tied(RATES, much, {**much, "tp": 3.0}, 0.0)
