"""The attention behind the compiled kernels against autograd, and which keys a query sees against small tables."""

from __future__ import annotations

import math
from itertools import product

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from megatron_hcp.proofs.te_cpu.kernels import attend, attend_backward, sink_backward  # noqa: E402
from megatron_hcp.proofs.te_cpu.visible import Bounds, visible  # noqa: E402

pytestmark = pytest.mark.torch


def table(seen: Tensor) -> list[str]:
    return ["".join(".x"[bool(cell)] for cell in row) for row in seen]


def bounds(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("causal", "window", "bottom_right", "rows"),
    [
        (True, (-1, -1), True, ["xxx.", "xxxx"]),
        (True, (-1, -1), False, ["x...", "xx.."]),
        (False, (-1, -1), True, ["xxxx", "xxxx"]),
        (True, (1, 0), True, [".xx.", "..xx"]),
        (False, (0, 1), False, ["xx..", ".xx."]),
    ],
)
def test_masks_are_aligned_and_windows_count_from_the_diagonal(
    causal: bool, window: tuple[int, int], bottom_right: bool, rows: list[str]
) -> None:
    assert table(visible(2, 4, causal=causal, window=window, bottom_right=bottom_right)) == rows


def test_packed_queries_see_the_keys_of_their_own_sequence_and_no_padding() -> None:
    q = Bounds(starts=bounds(0, 2, 4), lengths=bounds(0, 2, 3))  # the second sequence: a token, and padding
    k = Bounds(starts=bounds(0, 3, 5), lengths=bounds(0, 2, 4))
    assert table(visible(4, 5, causal=False, bottom_right=True, packed=(q, k))) == ["xx...", "xx...", "...xx", "....."]


def made(sink: bool) -> tuple[list[Tensor], Tensor, Tensor | None]:
    torch.manual_seed(5)
    q = torch.randn(2, 4, 5, 8, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, 2, 6, 8, dtype=torch.float64, requires_grad=True)
    v = torch.randn(2, 2, 6, 3, dtype=torch.float64, requires_grad=True)
    seen = torch.rand(5, 6) > 0.4
    seen[2] = False
    return [q, k, v], seen, torch.randn(4, dtype=torch.float64, requires_grad=True) if sink else None


def by_autograd(tensors: list[Tensor], seen: Tensor, sink: Tensor | None, scale: float) -> Tensor:
    q, k, v = tensors
    k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
    weights = torch.exp(q @ k.transpose(-1, -2) * scale) * seen
    total = weights.sum(-1, keepdim=True) + (0 if sink is None else sink.exp().view(1, -1, 1, 1))
    return weights @ v / torch.where(total == 0, 1, total)


@pytest.mark.parametrize("has_sink", [False, True])
def test_forward_and_backward_are_those_of_autograd_with_grouped_queries_and_rows_that_see_nothing(
    has_sink: bool,
) -> None:
    tensors, seen, sink = made(has_sink)
    expected = by_autograd(tensors, seen, sink, 0.3)
    q, k, v = (x.detach() for x in tensors)
    out, lse = attend(q, k, v, seen, 0.3, None if sink is None else sink.detach())
    assert torch.allclose(out, expected, rtol=0, atol=1e-14)
    dout = torch.randn_like(expected)
    expected.backward(dout)
    found = attend_backward(dout, q, k, v, out, lse, seen, 0.3)
    for gradient, tensor in zip(found, tensors):
        assert tensor.grad is not None and torch.allclose(gradient, tensor.grad, rtol=0, atol=1e-13)
    if sink is not None:
        assert sink.grad is not None
        assert torch.allclose(sink_backward(dout, out, lse, sink.detach()), sink.grad, rtol=0, atol=1e-13)


def test_a_query_that_sees_nothing_has_no_output_and_no_sum() -> None:
    x = torch.randn(1, 1, 2, 4)
    out, lse = attend(x, x, x, torch.tensor([[False, False], [True, True]]), 1.0)
    assert out[0, 0, 0].tolist() == [0, 0, 0, 0] and lse[0, 0, 0] == -math.inf


def test_gradients_of_two_blocks_add_up_when_each_is_given_the_whole_rows_sum() -> None:
    (q, k, v), _, _ = made(False)
    q, k, v = (x.detach() for x in (q, k, v))
    seen, dout = torch.ones(5, 6, dtype=torch.bool), torch.randn(2, 4, 5, 3, dtype=torch.float64)
    out, lse = attend(q, k, v, seen, 0.3)
    whole = attend_backward(dout, q, k, v, out, lse, seen, 0.3)
    parts = [
        attend_backward(dout, q, k[:, :, part], v[:, :, part], out, lse, seen[:, part], 0.3)
        for part in (slice(2), slice(2, 6))
    ]
    joined = parts[0][0] + parts[1][0], *(torch.cat([parts[0][i], parts[1][i]], dim=2) for i in (1, 2))
    for found, wanted in product([joined], [whole]):
        for ours, theirs in zip(found, wanted):
            assert torch.allclose(ours, theirs, rtol=0, atol=1e-13)
