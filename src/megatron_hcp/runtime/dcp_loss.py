"""The loss under dynamic CP, weighted so that a step equals that of one process (core.dcp.normalize, on tensors).

Call these on the loss *sum* of this rank's group (with megatron-core's own loss, of this rank's tokens). T, the tokens
of the whole step that carry the loss, is counted once on the whole batch, not all-reduced, because every rank has it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import torch
import torch.distributed as dist

from megatron_hcp.dcp import MicroBatch
from megatron_hcp.dcp.normalize import Weights, loss_weights
from megatron_hcp.runtime.collectives import all_gather

Gather = Literal["detached", "autograd", "replicated", "none"]


def weights_of_rank(
    micro_batch: MicroBatch,
    rank: int,
    *,
    reduction: str = "mean",
    gather: str = "detached",
    applied: Fraction = Fraction(1),
) -> Weights:
    """The multipliers of a rank's group in a micro-batch.

    reduction: "mean" for torch's DDP and megatron-core without calculate_per_token_loss, else "sum".
    gather: "detached", "autograd" or "replicated", as in `gather_rows`.
    applied: what the framework multiplies a returned loss by; for a (loss, report) that megatron-core's schedules get,
        `core.dcp.normalize.megatron_factor` of the static context_parallel_size and the step's micro-batches.
    """
    groups = micro_batch.groups
    world_size = sum(group.local_cp_size for group in groups)
    sizes = [group.local_cp_size for group in groups]
    weights = loss_weights(world_size, sizes, reduction=reduction, gather=gather, applied=applied)
    return next(one for one, group in zip(weights, groups) if rank in group.ranks)


def loss_for_backward(loss_sum: torch.Tensor, weights: Weights, loss_tokens: int) -> torch.Tensor:
    """What to call backward() on, or to return: the group's loss sum over T, times the multiplier of the gradient."""
    return loss_sum * (float(weights.backward) / loss_tokens)


def loss_for_report(
    loss_sum: torch.Tensor, weights: Weights, loss_tokens: int, over: Literal["mean", "sum"] = "mean"
) -> torch.Tensor:
    """This rank's part of the loss that a log shows, detached: the mean (or sum) over ranks, added over micro-batches.

    Every rank of a group has the group's sum, also where only its own shard has a gradient, so this multiplier is
    another one than that of the gradient.
    """
    factor = weights.report_mean if over == "mean" else weights.report_sum
    return loss_sum.detach() * (float(factor) / loss_tokens)


def per_token_loss(
    loss_sum: torch.Tensor, weights: Weights, *, loss_tokens: int, real_tokens: int, local_real_tokens: int
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """(loss, number of tokens, report): what a loss function returns to megatron-core with calculate_per_token_loss.

    megatron-core sums gradients over ranks and divides by the sum of the second element over ranks and micro-batches.
    verl counts real tokens there, masked or not, because the experts' auxiliary losses are divided by it too.

    Args:
        real_tokens: R, of the whole step, without padding.
        local_real_tokens: those of this rank's rows in this micro-batch; over all of them they add up to R.
    """
    scaled = loss_sum * (float(weights.per_token) * real_tokens / loss_tokens)
    count = torch.tensor(local_real_tokens, dtype=torch.int64, device=loss_sum.device)
    return scaled, count, {"loss": loss_for_report(loss_sum, weights, loss_tokens)}


def gather_rows(rows: torch.Tensor, group: dist.ProcessGroup | None, gather: Gather) -> torch.Tensor:
    """The rows of all members of a group, in group order: [members x rows]. Collective, unless `group` is None.

    "detached": the others' rows carry no gradient, ours do (verl's postprocess_thd_engine). "autograd": all do, so
    that a member's rows receive the gradients of every member's loss. Else: our rows alone.
    """
    if group is None or gather not in ("detached", "autograd"):
        return rows
    if gather == "autograd":
        return all_gather(rows, group, 0)
    parts = [torch.empty_like(rows, requires_grad=False) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, rows.detach().contiguous(), group=group)
    parts[dist.get_rank(group)] = rows
    return torch.cat(parts)
