"""Differentiable collectives: each one's backward is the matching collective on the gradients.

Every function here is collective over `group`: all members call it, in the same order. Autograd runs the backward
calls in the reverse of that order on every member, so the ranks also meet in the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def all_to_all(x: torch.Tensor, group: dist.ProcessGroup, split_dim: int, join_dim: int) -> torch.Tensor:
    """`x` cut along `split_dim` into one part per member; the parts received, joined along `join_dim`.

    Members' parts are joined in group order. With n members, `x.shape[split_dim]` shrinks by n and
    `x.shape[join_dim]` grows by n. Backward: the all-to-all with the two dims exchanged.
    """
    return _AllToAll.apply(x, group, split_dim, join_dim)


def all_gather(x: torch.Tensor, group: dist.ProcessGroup, dim: int) -> torch.Tensor:
    """The members' `x`, joined along `dim` in group order. Backward: a member gets its part's gradients, summed."""
    return _AllGather.apply(x, group, dim)


def ring_shift(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """The previous member's `x`; ours goes to the next member. Backward: gradients travel the other way round."""
    return _RingShift.apply(x, group, 1)


class _AllToAll(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup, split_dim: int, join_dim: int) -> torch.Tensor:
        ctx.group, ctx.split_dim, ctx.join_dim = group, split_dim, join_dim
        return _exchange(x, group, split_dim, join_dim)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _exchange(grad, ctx.group, ctx.join_dim, ctx.split_dim), None, None, None


class _AllGather(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup, dim: int) -> torch.Tensor:
        ctx.group, ctx.dim = group, dim
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        # A reduce-scatter. Written as all-to-all and a sum: gloo has no reduce-scatter, and the sum's order is fixed.
        parts = _exchange(grad.unsqueeze(0), ctx.group, ctx.dim + 1, 0)
        return parts.sum(0), None, None


class _RingShift(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup, step: int) -> torch.Tensor:
        ctx.group, ctx.step = group, step
        return _send_along(x, group, step)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _send_along(grad, ctx.group, -ctx.step), None, None


def _exchange(x: torch.Tensor, group: dist.ProcessGroup, split_dim: int, join_dim: int) -> torch.Tensor:
    sent = torch.stack(x.chunk(dist.get_world_size(group), dim=split_dim))
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return torch.cat(received.unbind(0), dim=join_dim)


def _send_along(x: torch.Tensor, group: dist.ProcessGroup, step: int) -> torch.Tensor:
    ranks = dist.get_process_group_ranks(group)
    here = dist.get_rank(group)
    received = torch.empty_like(x, memory_format=torch.contiguous_format)
    requests = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, x.contiguous(), ranks[(here + step) % len(ranks)], group=group),
            dist.P2POp(dist.irecv, received, ranks[(here - step) % len(ranks)], group=group),
        ]
    )
    for request in requests:
        request.wait()
    return received
