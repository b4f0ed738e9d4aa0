"""The nine thd kernels against the project's own shards, and against what they must do to each other."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from megatron_hcp.core.shards import shard_thd_indices, unshard_thd_indices  # noqa: E402
from megatron_hcp.proofs.te_cpu import thd  # noqa: E402
from megatron_hcp.proofs.te_cpu.kernels import attend  # noqa: E402

pytestmark = pytest.mark.torch

sizes = st.sampled_from([2, 3, 4, 8])
chunks = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def bounds(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)


def batch(chunks: list[int], size: int) -> Tensor:
    """Boundaries of sequences of so many tokens a chunk."""
    return bounds([2 * size * chunk for chunk in chunks])


@given(chunks, sizes)
def test_every_rank_holds_the_rows_that_core_gives_it(chunks: list[int], size: int) -> None:
    cu = batch(chunks, size)
    for rank in range(size):
        rows = thd.thd_get_partitioned_indices(cu, int(cu[-1]), size, rank)
        assert rows.dtype == torch.int32
        assert rows.tolist() == shard_thd_indices(cu.tolist(), rank, size)


@given(chunks, sizes)
def test_rank_order_and_sequence_order_are_cores_and_undo_each_other(chunks: list[int], size: int) -> None:
    cu = batch(chunks, size)
    x = torch.randn(int(cu[-1]), 2, 3)
    by_rank = thd.thd_sequence_order_to_cp_rank_order(x, cu, size, len(x))
    assert torch.equal(by_rank[unshard_thd_indices(cu.tolist(), size)], x)
    assert torch.equal(thd.thd_cp_rank_order_to_sequence_order(by_rank, cu, size, len(x)), x)


@given(chunks, st.sampled_from([(), (2,)]))
def test_the_two_halves_of_every_sequence_are_the_whole_of_it(chunks: list[int], outer: tuple[int, ...]) -> None:
    cu = batch(chunks, 1)
    x = torch.randn(*outer, int(cu[-1]), 2, 3)
    first, second = (thd.thd_read_half_tensor(x, cu, half) for half in (0, 1))
    for start, end in pairwise(cu.tolist()):
        half = slice(start // 2, end // 2)
        assert torch.equal(
            torch.cat([first[..., half, :, :], second[..., half, :, :]], dim=-3), x[..., start:end, :, :]
        )


@given(chunks)
def test_the_second_halfs_log_sum_exps_are_those_of_its_rows(chunks: list[int]) -> None:
    cu = batch(chunks, 1)
    numbers = torch.arange(int(cu[-1]), dtype=torch.float64)
    rows = thd.thd_read_half_tensor(numbers[:, None, None], cu, 1).flatten()
    assert torch.equal(thd.thd_read_second_half_lse(numbers[None], cu, True)[0], rows)


ACTIONS = [(a, b) for a in ("add", "copy", "zero", "none") for b in ("add", "copy", "zero", "none")]


@pytest.mark.parametrize(("first", "second"), ACTIONS)
def test_a_gradient_is_added_copied_cleared_or_left_half_by_half(first: str, second: str) -> None:
    cu = bounds([4, 2])
    rows = [[0, 1, 4], [2, 3, 5]]  # the halves of both sequences
    grad = torch.arange(6.0, dtype=torch.float64)[:, None, None].repeat(1, 2, 3)
    before = grad.clone()
    brings = [action in ("add", "copy") for action in (first, second)]
    step = torch.full((6 if all(brings) else 3, 2, 3), 100.0, dtype=torch.float64)
    thd.thd_grad_correction(grad, step, cu, first, second)
    for half, action in zip(rows, (first, second)):
        wanted = {"add": before[half] + 100, "copy": torch.full_like(before[half], 100), "zero": before[half] * 0}
        assert torch.equal(grad[half], wanted.get(action, before[half])), action


def attention_in_blocks(*, with_lse_before: bool, second_half_first: bool = False) -> tuple[Tensor, Tensor]:
    """Packed attention of two halves of the keys, merged by the kernels; and in one block."""
    torch.manual_seed(3)
    cu, tokens = bounds([4, 8]), 12
    q, k, v = (torch.randn(1, 2, tokens, 4, dtype=torch.float64) for _ in range(3))
    everything = torch.ones(tokens, tokens, dtype=torch.bool)
    whole, _ = attend(q, k, v, everything, 0.5)
    blocks = [attend(q, k[:, :, part], v[:, :, part], everything[:, part], 0.5) for part in (slice(5), slice(5, 12))]
    out = torch.zeros(tokens, 2, 4, dtype=torch.float64)
    merged = torch.full((2, tokens), -math.inf, dtype=torch.float64)
    for block, lse in blocks:
        before = merged.clone()
        merged = torch.logaddexp(merged, lse[0])
        rest = (before, merged, lse[0]) if with_lse_before else (torch.logaddexp(blocks[0][1], blocks[1][1])[0], lse[0])
        thd.thd_out_correction(out, block[0].transpose(0, 1).contiguous(), *rest, cu, False, True)
    return out, whole[0].transpose(0, 1)


@pytest.mark.parametrize("with_lse_before", [False, True], ids=["before 2.20", "from 2.20 on"])
def test_outputs_of_two_blocks_merge_to_the_output_of_one(with_lse_before: bool) -> None:
    merged, whole = attention_in_blocks(with_lse_before=with_lse_before)
    assert torch.allclose(merged, whole, rtol=0, atol=1e-14)


def test_a_step_of_the_second_halves_leaves_the_first_ones_alone() -> None:
    cu = bounds([4, 2])
    lse = torch.zeros(1, 6, dtype=torch.float64)
    thd.thd_second_half_lse_correction(lse, torch.zeros(1, 3, dtype=torch.float64), cu, True)
    assert lse[0].tolist() == pytest.approx([0, 0, math.log(2), math.log(2), 0, math.log(2)])
    out = torch.ones(6, 1, 1, dtype=torch.float64)
    thd.thd_out_correction(out, torch.full((3, 1, 1), 2.0, dtype=torch.float64), lse, torch.zeros(1, 3), cu, True, True)
    assert out.flatten().tolist() == pytest.approx([1, 1, 2, 2, 1, 2])  # 1 + 2 · exp(0 - log 2)


def test_padding_is_not_copied() -> None:
    out, split = torch.zeros(6, 1, 1), torch.arange(1.0, 7).view(6, 1, 1)
    thd.thd_copy_valid_tokens_from_per_split_to_rank_local(out, split, bounds([4, 2]), bounds([3, 1]))
    assert out.flatten().tolist() == [1, 2, 3, 0, 5, 0]


def test_log_sum_exps_of_old_kernels_are_refused() -> None:
    with pytest.raises(AssertionError, match="cuDNN before"):
        thd.thd_read_second_half_lse(torch.zeros(1, 2), bounds([2]), False)
