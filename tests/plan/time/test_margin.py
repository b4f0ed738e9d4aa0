"""The margin of a predicted step: wide where the step is of terms that few measured steps hold."""

from __future__ import annotations

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.cost.model_sizes import ModelSizes
from megatron_hcp.plan.constants import rates_for
from megatron_hcp.plan.constants_fitted import FITTED
from megatron_hcp.plan.layout import PlanJob
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.time.margin import FEW, HOST_OF_MANY, NOISE, SPREADS, UNCOVERED, margin

DENSE = PlanModel(ModelSizes(6, 64, 4, 4, 16, 16, 256, 6, True), (False,) * 6)


def wide(terms: dict[str, float], gpu: str = "h100", precision: str = "bf16", is_covered: bool = True) -> float:
    job = PlanJob(8, 8, gpu_named(gpu), 8, 4096, 8, precision)
    return margin(DENSE, job, rates_for(job), terms, is_covered)


def test_a_margin_is_the_root_of_the_squares_of_noise_and_each_terms_share() -> None:
    shares = NOISE**2 + (0.75 * SPREADS["gemm"]) ** 2 + (0.25 * SPREADS["host"]) ** 2
    assert wide({"gemm": 3.0, "host": 1.0}) == pytest.approx(FITTED["margin.scale"] * shares**0.5)


def test_products_that_few_steps_measured_widen_it() -> None:
    plain, few = (wide({"gemm": 1.0}, "b200", precision) for precision in ("mxfp8", "nvfp4"))
    assert few == pytest.approx(FITTED["margin.scale"] * (NOISE**2 + SPREADS["gemm"] ** 2 + FEW**2) ** 0.5)
    assert plain < few


def test_a_gpu_that_nobody_measured_widens_it() -> None:
    assert wide({"gemm": 1.0}, "a100") == pytest.approx(wide({"gemm": 1.0}) * FITTED["margin.gpu"])


def test_what_no_measurement_covers_has_at_least_the_least_margin() -> None:
    assert wide({"gemm": 1.0}, is_covered=False) == UNCOVERED > wide({"gemm": 1.0})
    assert wide({"host": 1.0}, is_covered=False) == wide({"host": 1.0}) > UNCOVERED


def test_the_hosts_time_is_open_where_a_rank_has_more_experts_than_any_measured_step() -> None:
    job, terms = PlanJob(8, 8, gpu_named("h100"), 8, 4096, 8), {"gemm": 3.0, "host": 1.0}
    many = margin(DENSE, job, rates_for(job), terms, True, has_many_experts=True)
    squares = wide(terms) ** 2 + (0.25 * HOST_OF_MANY * FITTED["margin.scale"]) ** 2
    assert many == pytest.approx(squares**0.5)
    assert margin(DENSE, job, rates_for(job), {"gemm": 3.0}, True, has_many_experts=True) == wide({"gemm": 3.0})
