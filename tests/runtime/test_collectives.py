"""The backward of each collective is its adjoint: <f(x), y> = <x, backward(y)>, summed over the ranks."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from megatron_hcp.runtime.collectives import all_gather, all_to_all, ring_shift  # noqa: E402

pytestmark = pytest.mark.torch


def products(rank, function, shape, dtype=torch.float64):
    import torch.distributed as dist

    draw = torch.Generator().manual_seed(rank)
    x = torch.randn(*shape, dtype=torch.float64, generator=draw).to(dtype).requires_grad_()
    out = function(x, dist.group.WORLD)
    y = torch.randn(*out.shape, dtype=torch.float64, generator=draw).to(dtype)
    out.backward(y)
    return (out.detach() * y).sum().item(), (x.detach() * x.grad).sum().item()


def test_backward_is_the_adjoint_of_every_collective(ranks):
    functions = [
        (lambda x, group: all_to_all(x, group, 2, 0), (3, 2, 8, 5)),
        (lambda x, group: all_to_all(x, group, 0, 2), (8, 2, 3, 5)),
        (lambda x, group: all_gather(x, group, 0), (3, 2)),
        (lambda x, group: all_gather(x, group, 1), (3, 2)),
        (ring_shift, (3, 2)),
    ]

    def work(rank):
        return [products(rank, function, shape) for function, shape in functions]

    for of_ranks in zip(*ranks(work)):
        forward, backward = (sum(values) for values in zip(*of_ranks))
        assert forward == pytest.approx(backward, rel=1e-12)


def test_what_arrives_is_what_the_others_sent(ranks):
    import torch.distributed as dist

    def work(rank):
        world = dist.group.WORLD
        mine = torch.arange(4) + 10 * rank
        return (
            ring_shift(mine, world).tolist(),
            all_gather(mine[:1], world, 0).tolist(),
            all_to_all(mine, world, 0, 0).tolist(),
        )

    results = ranks(work)
    assert [result[0][0] for result in results] == [30, 0, 10, 20]
    assert all(result[1] == [0, 10, 20, 30] for result in results)
    assert results[2][2] == [2, 12, 22, 32]
