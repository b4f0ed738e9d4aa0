"""Attention over blocks of keys equals attention over all of them, however they are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from megatron_hcp.runtime.online_softmax import attend, finish, merge  # noqa: E402
from support.selection import examples  # noqa: E402

pytestmark = pytest.mark.torch


def drawn(seed, queries=5, keys=7, heads=4, kv_heads=2):
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    visible = torch.rand(queries, keys, generator=generator) < 0.5
    return random(queries, 2, heads, 3), random(keys, 2, kv_heads, 3), random(keys, 2, kv_heads, 6), visible


def naive(q, k, v, visible, scale):
    """A softmax written out for one query at a time; zero where nothing is visible."""
    out = torch.zeros(*q.shape[:3], v.shape[-1], dtype=q.dtype)
    repeats = q.shape[2] // k.shape[2]
    for i, b, h in itertools.product(*map(range, q.shape[:3])):
        seen = visible[i].nonzero().flatten()
        if len(seen):
            weights = torch.softmax(scale * k[seen, b, h // repeats] @ q[i, b, h], 0)
            out[i, b, h] = weights @ v[seen, b, h // repeats]
    return out


@settings(max_examples=examples(quick=10, full=30))
@given(seed=st.integers(0, 10_000), cuts=st.lists(st.integers(0, 7), max_size=4), swap=st.booleans())
def test_keys_cut_into_blocks_and_merged_in_any_order_give_the_softmax_over_all(seed, cuts, swap):
    q, k, v, visible = drawn(seed)
    edges = [0, *sorted(cuts), 7]
    blocks = [attend(q, k[a:b], v[a:b], visible[:, a:b], 0.7) for a, b in itertools.pairwise(edges) if b > a]
    while len(blocks) > 1:
        a, b, *rest = blocks
        blocks = [merge(b, a) if swap else merge(a, b), *rest]
    torch.testing.assert_close(finish(blocks[0]), naive(q, k, v, visible, 0.7), rtol=1e-12, atol=1e-12)


def test_a_query_that_sees_nothing_gets_zeros_and_no_gradient_is_nan():
    q, k, v, visible = drawn(1)
    visible[2] = False
    tensors = [x.requires_grad_() for x in (q, k, v)]
    out = finish(merge(attend(q, k[:3], v[:3], visible[:, :3], 1.0), attend(q, k[3:], v[3:], visible[:, 3:], 1.0)))
    out.sum().backward()
    assert (out[2] == 0).all()
    assert all(torch.isfinite(x.grad).all() for x in tensors)
    assert (q.grad[2] == 0).all()


def test_the_gradients_are_those_of_finite_differences():
    q, k, v, visible = drawn(3)
    visible[1] = False

    def two_blocks(q, k, v):
        return finish(merge(attend(q, k[:2], v[:2], visible[:, :2], 0.5), attend(q, k[2:], v[2:], visible[:, 2:], 0.5)))

    assert torch.autograd.gradcheck(two_blocks, [x.requires_grad_() for x in (q, k, v)])


def test_scores_far_beyond_the_range_of_exp_do_not_overflow():
    q, k, v, visible = drawn(4)
    visible[:] = True
    out = finish(
        merge(attend(1e6 * q, k[:3], v[:3], visible[:, :3], 1.0), attend(1e6 * q, k[3:], v[3:], visible[:, 3:], 1.0))
    )
    torch.testing.assert_close(out, naive(1e6 * q, k, v, visible, 1.0))


def test_low_precision_inputs_are_accumulated_in_fp32():
    q, k, v, visible = drawn(5)
    part = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), visible, 1.0)
    assert {x.dtype for x in part} == {torch.float32}
