"""The multipliers of the loss, applied to tensors; and the gathering that decides which one is right."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tensordict")

from megatron_hcp.dcp import Group, MicroBatch  # noqa: E402
from megatron_hcp.runtime.dcp_loss import (  # noqa: E402
    gather_rows,
    loss_for_backward,
    loss_for_report,
    per_token_loss,
    weights_of_rank,
)

pytestmark = pytest.mark.torch

MIXED = MicroBatch((Group(0, 2, (0,)), Group(2, 1, (1,)), Group(3, 1, (2,))))


@pytest.mark.parametrize(
    "reduction, gather, factors",
    [
        ("mean", "detached", [4, 4, 4, 4]),
        ("mean", "autograd", [2, 2, 4, 4]),
        ("mean", "replicated", [2, 2, 4, 4]),
        ("sum", "detached", [1, 1, 1, 1]),
        ("sum", "autograd", [0.5, 0.5, 1, 1]),
    ],
)
def test_each_rank_multiplies_by_what_its_own_group_needs(reduction: str, gather: str, factors: list[float]) -> None:
    loss = torch.tensor(20.0, dtype=torch.float64)
    for rank, factor in enumerate(factors):
        weights = weights_of_rank(MIXED, rank, reduction=reduction, gather=gather)
        assert loss_for_backward(loss, weights, 5).item() == factor * 20 / 5


def test_the_reported_loss_is_the_mean_over_tokens_and_has_no_gradient() -> None:
    sums = {0: 6.0, 1: 6.0, 2: 3.0, 3: 1.0}  # ranks 0 and 1 have one group's sum
    reports = []
    for rank, value in sums.items():
        loss = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        weights = weights_of_rank(MIXED, rank)
        reports.append(loss_for_report(loss, weights, 10))
        assert not reports[-1].requires_grad
        assert loss_for_report(loss, weights, 10, over="sum").item() == reports[-1].item() / 4
    assert sum(report.item() for report in reports) / 4 == pytest.approx((6 + 3 + 1) / 10, rel=1e-15)


def test_the_per_token_triple_divides_out() -> None:
    """Summed over ranks and divided by all counts, the loss sums are over T: as megatron-core finalizes gradients."""
    counts, sums = [4, 3, 9, 5], [6.0, 6.0, 3.0, 1.0]
    losses, total = [], 0
    for rank in range(4):
        loss, count, report = per_token_loss(
            torch.tensor(sums[rank], dtype=torch.float64),
            weights_of_rank(MIXED, rank),
            loss_tokens=10,
            real_tokens=21,
            local_real_tokens=counts[rank],
        )
        losses.append(loss.item())
        total += int(count)
        assert set(report) == {"loss"}
    assert total == 21
    assert losses[2] / total == pytest.approx(3.0 / 10, rel=1e-15)
    assert losses[0] / total == pytest.approx(6.0 / 10, rel=1e-15)  # its gradient is that of its own shard alone


def _gradients(rank: int) -> dict[str, Any]:
    import torch.distributed as dist

    found = {}
    for gather in ("detached", "autograd", "none"):
        rows = torch.full((2,), float(rank + 1), dtype=torch.float64, requires_grad=True)
        gathered = gather_rows(rows, dist.group.WORLD, gather)
        gathered.square().sum().backward()
        found[gather] = (gathered.tolist(), rows.grad.tolist())
    return found


def test_a_detached_gather_has_the_values_of_all_and_the_gradient_of_one(ranks: Any) -> None:
    for rank, found in enumerate(ranks(_gradients, size=2)):
        own = 2.0 * (rank + 1)
        assert found["detached"] == ([1.0, 1.0, 2.0, 2.0], [own, own])
        assert found["autograd"] == ([1.0, 1.0, 2.0, 2.0], [2 * own, 2 * own])
        assert found["none"] == ([rank + 1.0] * 2, [own, own])
