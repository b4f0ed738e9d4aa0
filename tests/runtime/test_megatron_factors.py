"""What megatron-core does to a returned loss: its own `forward_step`, run as each rank in turn, and DDP's reduction.

The step's groups hold log-probabilities x = f(theta); the loss of a group is the sum of their squares, so that it is
not linear in them. A rank has the group's rows, but a gradient only through its own.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tensordict")

from megatron_hcp.dcp import Group, MicroBatch  # noqa: E402
from megatron_hcp.dcp.normalize import megatron_factor  # noqa: E402
from megatron_hcp.runtime.dcp_loss import loss_for_backward, per_token_loss, weights_of_rank  # noqa: E402

pytestmark = pytest.mark.torch

STEP = (
    MicroBatch((Group(0, 2, (0,)), Group(2, 1, (1,)), Group(3, 1, (2,)))),
    MicroBatch((Group(0, 4, (3,)),)),
    MicroBatch(tuple(Group(rank, 1, (4 + rank,)) for rank in range(4))),
)
WORLD_SIZE = 4
ROWS = torch.randn((8, 4, 3), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
"""[sample, row, feature]: four rows for each sample, so that groups of 1, 2 and 4 divide them."""
TOKENS = ROWS.shape[0] * ROWS.shape[1]


class Model(torch.nn.Module):  # type: ignore[name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64))
        self.config = SimpleNamespace()

    def set_input_tensor(self, tensor: Any) -> None:
        pass

    def forward(self, rows: Any) -> Any:
        return rows @ self.theta


def reference() -> Any:
    model = Model()
    (model(ROWS).square().sum() / TOKENS).backward()
    return model.theta.grad


def step(loss_func_of: Any, *, cp: int, per_token: bool) -> Any:
    """The gradient that DDP and finalize_model_grads leave, with each rank's forward_step run by megatron-core."""
    from megatron.core.pipeline_parallel.schedules import forward_step

    config = SimpleNamespace(timers=None, enable_autocast=False, calculate_per_token_loss=per_token)
    model, counted = Model(), 0
    for rank in range(WORLD_SIZE):
        for micro_batch in STEP:
            group = next(group for group in micro_batch.groups if rank in group.ranks)
            rows = ROWS[group.samples[0]].chunk(group.local_cp_size)

            def forward(_: Any, model: Any) -> Any:
                parts = [model(part).detach() for part in rows]  # noqa: B023, called before the next turn
                parts[rank - group.start] = model(rows[rank - group.start])  # noqa: B023
                return torch.cat(parts).square().sum(), loss_func_of(micro_batch, rank, len(parts[0]))  # noqa: B023

            loss, tokens = forward_step(
                forward, None, model, len(STEP), None, [], config, cp_group_size=cp, is_last_stage=True
            )
            loss.backward()
            counted += int(tokens)
    gradient = model.theta.grad
    if per_token:
        return gradient / counted if counted else gradient
    return gradient / WORLD_SIZE


@pytest.mark.parametrize("cp", [1, 2, 4])
@pytest.mark.parametrize("per_token", [False, True])
def test_a_pair_is_multiplied_by_static_cp_and_divided_by_the_micro_batches(cp: int, per_token: bool) -> None:
    """Also with calculate_per_token_loss, where DDP sums."""
    reduction = "sum" if per_token else "mean"

    def loss_func_of(micro_batch: Any, rank: int, _: int) -> Any:
        weights = weights_of_rank(micro_batch, rank, reduction=reduction, applied=megatron_factor(cp, len(STEP)))
        return lambda loss_sum: (loss_for_backward(loss_sum, weights, TOKENS), {})

    torch.testing.assert_close(step(loss_func_of, cp=cp, per_token=per_token), reference(), rtol=1e-12, atol=0)


def test_without_megatrons_factors_the_gradient_is_off_by_them() -> None:
    def loss_func_of(micro_batch: Any, rank: int, _: int) -> Any:
        return lambda loss_sum: (loss_for_backward(loss_sum, weights_of_rank(micro_batch, rank), TOKENS), {})

    found = step(loss_func_of, cp=2, per_token=False)
    torch.testing.assert_close(found, reference() * 2 / len(STEP), rtol=1e-12, atol=0)


@pytest.mark.parametrize("cp", [1, 4])
def test_a_per_token_loss_is_left_as_it_is(cp: int) -> None:
    def loss_func_of(micro_batch: Any, rank: int, local_rows: int) -> Any:
        counts = {"loss_tokens": TOKENS, "real_tokens": TOKENS, "local_real_tokens": local_rows}
        return lambda loss_sum: per_token_loss(loss_sum, weights_of_rank(micro_batch, rank), **counts)

    torch.testing.assert_close(step(loss_func_of, cp=cp, per_token=True), reference(), rtol=1e-12, atol=0)


def test_three_things_without_per_token_loss_are_a_mean_of_means() -> None:
    """Each rank's loss over its own tokens and the micro-batches, whatever static CP is: another direction."""

    def loss_func_of(micro_batch: Any, rank: int, local_rows: int) -> Any:
        return lambda loss_sum: (loss_sum, torch.tensor(local_rows), {})

    found = [step(loss_func_of, cp=cp, per_token=False) for cp in (1, 4)]
    assert torch.equal(found[0], found[1])
    model = Model()
    means = [
        model(ROWS[group.samples[0]]).square().sum() * group.local_cp_size / 4
        for micro_batch in STEP
        for group in micro_batch.groups
    ]
    (sum(means) / len(STEP) / WORLD_SIZE).backward()
    torch.testing.assert_close(found[0], model.theta.grad, rtol=1e-12, atol=0)
    assert torch.cosine_similarity(found[0], reference(), 0) < 0.999
