"""The nine kernels of Transformer Engine for packed data (thd) under context parallelism, in torch.

Each has the name and the arguments of a function of the compiled module transformer_engine_torch, whose source is
transformer_engine/common/fused_attn/context_parallel.cu; its docstring says what it does. Packed tensors are
[tokens, heads, head_dim], log-sum-exps [heads, tokens]; `cu_seqlens` are the boundaries [n + 1] of the sequences as
this rank holds them, each of which is two chunks: the first half and the second half.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from megatron_hcp.core.packing import partition_as_compiled


def thd_read_half_tensor(tensor: torch.Tensor, cu_seqlens: torch.Tensor, half_idx: int) -> torch.Tensor:
    """The first (0) or second (1) half of every sequence. Before 2.6 also of keys and values in one [2, t, h, d]."""
    return tensor.index_select(tensor.dim() - 3, _half(cu_seqlens, half_idx)).contiguous()


def thd_read_second_half_lse(
    lse: torch.Tensor, cu_seqlens: torch.Tensor, lse_packed: bool, second_half_lse_seqlen: int | None = None
) -> torch.Tensor:
    """The log-sum-exps of the second halves [heads, tokens / 2]."""
    _expect_packed(lse_packed)
    return lse[:, _half(cu_seqlens, 1)].contiguous()


def thd_second_half_lse_correction(
    lse: torch.Tensor, lse_per_step: torch.Tensor, cu_seqlens: torch.Tensor, lse_packed: bool
) -> None:
    """Merges the log-sum-exps that a step has for the second halves into `lse`, in place."""
    _expect_packed(lse_packed)
    rows = _half(cu_seqlens, 1)
    lse[:, rows] = torch.logaddexp(lse[:, rows], lse_per_step[:, : len(rows)].to(lse.dtype))


def thd_out_correction(out: torch.Tensor, out_per_step: torch.Tensor, *rest: Any) -> None:
    """Adds a step's output to `out`, in place, each weighted by its share of the final softmax.

    The rest is (lse, lse_per_step, cu_seqlens, only_second_half, lse_packed); from 2.20 on the log-sum-exp before this
    step comes first, and what is already in `out` is reweighted with it.
    """
    *lses, cu_seqlens, only_second_half, lse_packed = rest
    _expect_packed(lse_packed)
    rows = _half(cu_seqlens, 1) if only_second_half else torch.arange(int(cu_seqlens[-1]))
    before, (merged, step) = lses[:-2], lses[-2:]
    added = out_per_step.reshape(-1, *out.shape[-2:])[: len(rows)]
    kept = out[rows].to(merged.dtype)
    if before:
        kept = _weighed(kept, before[0][:, rows] - merged[:, rows])
    added = _weighed(added.to(merged.dtype), step[:, : len(rows)].to(merged.dtype) - merged[:, rows])
    out[rows] = (kept + added).to(out.dtype)


def thd_grad_correction(
    grad: torch.Tensor, grad_per_step: torch.Tensor, cu_seqlens: torch.Tensor, first_half: str, second_half: str
) -> None:
    """What becomes of each half of `grad`, in place: "add" or "copy" from the step, "zero", or "none" (stays).

    A step that concerns only one half passes only that half.
    """
    dim = grad.dim() - 3
    brings = {"add", "copy"}
    is_whole = {first_half, second_half} <= brings
    for half, action in enumerate((first_half, second_half)):
        rows = _half(cu_seqlens, half)
        if action == "zero":
            grad.index_fill_(dim, rows, 0)
        if action in brings:
            given = grad_per_step.index_select(dim, rows if is_whole else torch.arange(len(rows)))
            grad.index_copy_(dim, rows, given if action == "copy" else grad.index_select(dim, rows) + given)


def thd_get_partitioned_indices(
    cu_seqlens: torch.Tensor, total_tokens: int, world_size: int, rank: int
) -> torch.Tensor:
    """The rows of a packed batch that a rank holds, int32: chunks r and 2·cp-1-r of every sequence."""
    rows = partition_as_compiled(cu_seqlens.tolist(), total_tokens, rank, world_size)
    return torch.tensor(rows, dtype=torch.int32)


def thd_sequence_order_to_cp_rank_order(
    x: torch.Tensor, cu_seqlens: torch.Tensor, cp_size: int, total_tokens: int
) -> torch.Tensor:
    """All rows, those of cp rank 0 first."""
    return x[_rank_order(cu_seqlens, total_tokens, cp_size)]


def thd_cp_rank_order_to_sequence_order(
    x: torch.Tensor, cu_seqlens: torch.Tensor, cp_size: int, total_tokens: int
) -> torch.Tensor:
    """The inverse."""
    ordered = torch.empty_like(x)
    ordered[_rank_order(cu_seqlens, total_tokens, cp_size)] = x
    return ordered


def thd_copy_valid_tokens_from_per_split_to_rank_local(
    out: torch.Tensor, per_split: torch.Tensor, cu_seqlens_padded: torch.Tensor, cu_seqlens: torch.Tensor, *_: Any
) -> None:
    """Copies the rows of each sequence that are not padding to the same place in `out`."""
    for start, length in zip(cu_seqlens_padded.tolist(), cu_seqlens.diff().tolist()):
        out[start : start + length] = per_split[start : start + length]


KERNELS = {
    kernel.__name__: kernel
    for kernel in (
        thd_read_half_tensor,
        thd_read_second_half_lse,
        thd_second_half_lse_correction,
        thd_out_correction,
        thd_grad_correction,
        thd_get_partitioned_indices,
        thd_sequence_order_to_cp_rank_order,
        thd_cp_rank_order_to_sequence_order,
        thd_copy_valid_tokens_from_per_split_to_rank_local,
    )
}
"""Stand-ins by their name in transformer_engine_torch."""


def _sequences(cu_seqlens: torch.Tensor) -> list[tuple[int, int]]:
    return list(pairwise(cu_seqlens.tolist()))


def _half(cu_seqlens: torch.Tensor, half: int) -> torch.Tensor:
    rows: list[int] = []
    for start, end in _sequences(cu_seqlens):
        middle = start + (end - start) // 2
        rows += range(middle, end) if half else range(start, middle)
    return torch.tensor(rows, dtype=torch.int64)


def _rank_order(cu_seqlens: torch.Tensor, total: int, size: int) -> torch.Tensor:
    return torch.cat([thd_get_partitioned_indices(cu_seqlens, total, size, rank) for rank in range(size)]).long()


def _weighed(rows: torch.Tensor, log_weight: torch.Tensor) -> torch.Tensor:
    # Rows of padding are 0 and have no log-sum-exp: 0 stays 0.
    return torch.where(rows == 0, 0, rows * torch.exp(log_weight).transpose(0, 1)[..., None])


def _expect_packed(lse_packed: bool) -> None:
    assert lse_packed, "log-sum-exps [batch, heads, tokens] of packed data: cuDNN before 9.6, FlashAttention before 2.6"
