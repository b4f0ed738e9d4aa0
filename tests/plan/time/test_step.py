"""Stages that are alike are computed once, and count as often as there are."""

from __future__ import annotations

import pytest

from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.time.step import WORST_STAGE, micro_batch_seconds
from megatron_hcp.plan.weights import stage_kinds, unlike_stages

SIZES = {"hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 14336, "vocab_size": 128256}
EXPERTS = {"num_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 1536, "first_k_dense_replace": 3}
DENSE, MOE, EXTRA = 0.25, 3.0, 0.125
"""Seconds whose sums are exact."""


@pytest.mark.parametrize("more", [{}, EXPERTS])
@pytest.mark.parametrize(("layers", "pp", "vp"), [(1000, 840, 1), (1000, 315, 2), (1000, 8, 1), (6, 2, 3), (6, 1, 1)])
def test_a_micro_batch_takes_the_mean_and_a_part_of_the_longest_stage(
    layers: int, pp: int, vp: int, more: dict[str, int]
) -> None:
    model = plan_model({**SIZES, **more, "num_hidden_layers": layers})
    times = [dense * DENSE + moe * MOE for dense, moe in stage_kinds(model, pp, vp)]
    times[-1] += EXTRA
    mean = sum(times) / pp
    kinds = unlike_stages(model, pp, vp)
    found = micro_batch_seconds(kinds, model.layers, pp, dense=DENSE, moe=MOE, extra=EXTRA)
    assert found == (mean + WORST_STAGE * (max(times) - mean), mean)
    assert len(kinds) <= 8 and kinds[0] == stage_kinds(model, pp, vp)[0]
