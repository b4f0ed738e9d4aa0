"""The matrix products of a layer: whole tiles, and what biases cost."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.constants import rates_of
from megatron_hcp.plan.time.layer import gemm_seconds
from megatron_hcp.plan.time.shapes import Product

RATES = rates_of(gpu_named("h100"), "bf16", {})


def test_outputs_are_computed_in_whole_tiles() -> None:
    """21.5 tiles of 128 take as long as 22, of the same width and with the same bytes."""
    rates = replace(RATES, memory_bandwidth=math.inf, half_size=0.0)
    odd, even, more = (
        gemm_seconds([Product(4096, outputs, 4096)], rates, rates.gemm_flops, 2.0) for outputs in (2752, 2816, 2817)
    )
    assert odd == pytest.approx(even) and more == pytest.approx(even * 23 / 22, rel=1e-2)


def test_biases_cost_the_products_of_experts_alone() -> None:
    product = Product(4096, 2816, 4096)
    for one, factor in ((product, 1.0), (product._replace(experts=8), 1 / RATES.biased)):
        with_bias, without = (
            gemm_seconds([one], replace(RATES, memory_bandwidth=math.inf), RATES.gemm_flops, 2.0, biased)
            for biased in (True, False)
        )
        assert with_bias == pytest.approx(without * factor, rel=1e-2)
