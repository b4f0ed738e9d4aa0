"""The cost model and its text form."""

from __future__ import annotations

import pytest

from megatron_hcp.dcp import DEFAULT_COST, Cost, parse_cost, plan_micro_batches
from megatron_hcp.ground.errors import HcpError


def test_names_not_given_keep_their_default() -> None:
    assert parse_cost("") == DEFAULT_COST
    assert parse_cost(" comm = 5 , linear=2e3") == Cost(linear=2000.0, comm=5.0)


@pytest.mark.parametrize(
    "text, words",
    [
        ("cubic=1", "wanted NAME=NUMBER"), ("comm", "wanted NAME=NUMBER"), ("comm=a", "wanted 0, or a number"),
        ("comm=-1", "wanted 0, or a number"), ("linear=nan", "from 1e-30"),
        ("quadratic=inf", r"to 1e\+30"), ("linear=1e-300", "from 1e-30"), ("comm=1,comm=2", "twice"),
        ("linear=0,quadratic=0", "both 0"),
    ],
)  # fmt: skip
def test_what_is_no_cost_is_an_error(text: str, words: str) -> None:
    with pytest.raises(HcpError, match=words):
        parse_cost(text)


def test_comm_moves_the_plan_between_even_load_and_few_ranks_per_sequence() -> None:
    lengths = [30000, 24000, 21000, 18000, 6000, 5000, 4000, 3000, 2000, 1000, 900, 800]
    plans = [plan_micro_batches(lengths, 32, 8192, cost=Cost(comm=comm)).metrics for comm in (0.0, 20000.0, 1e7)]
    spread = [metrics.mean_cp_over_min for metrics in plans]
    uneven = [metrics.imbalance for metrics in plans]
    assert spread == sorted(spread, reverse=True) and spread[0] > 1.5 * spread[-1]
    assert uneven == sorted(uneven) and uneven[-1] > 1.4 * uneven[0]


def test_the_basis_of_the_seconds_names_what_the_model_does_not_say() -> None:
    known = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    assert Cost.from_facts(known).machine.basis.endswith("(assumed: width of the MLP, vocabulary)")
    experts = {**known, "num_experts": 8, "vocab_size": 1000}
    assert Cost.from_facts(experts).machine.basis.endswith("(assumed: width of the experts, experts per token)")
    assert "assumed" not in Cost.from_facts({**experts, "moe_ffn_hidden_size": 32, "moe_router_topk": 2}).machine.basis
