"""Which keys a query of one kernel call sees: causal or full, windows, either alignment, packed rows.

Source: the documentation of FlashAttention's `flash_attn_func` (the causal mask is aligned to the bottom right corner,
a window (left, right) counts from that diagonal) and of Transformer Engine's `fused_attn_fwd` (top left, unless the
mask's name or bottom_right_diagonal says bottom right).
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Bounds(NamedTuple):
    """Where the sequences of a packed tensor lie, and how many rows of each are real. Both are boundaries [n + 1].

    cuDNN calls the two cu_seqlens_padded and cu_seqlens, FlashAttention 3 cu_seqlens and (as lengths) seqused;
    FlashAttention 2 has one tensor for both.
    """

    starts: torch.Tensor
    lengths: torch.Tensor


class _Tokens(NamedTuple):
    """What each row of a tensor is, int64 [rows]: its sequence (-1: none), its position, its sequence's length."""

    sequence: torch.Tensor
    position: torch.Tensor
    length: torch.Tensor


def visible(
    num_queries: int,
    num_keys: int,
    *,
    causal: bool,
    window: tuple[int, int] = (-1, -1),
    bottom_right: bool,
    packed: tuple[Bounds, Bounds] | None = None,
) -> torch.Tensor:
    """[queries, keys], bool. `packed` describes queries and keys; without it each tensor is one sequence.

    Args:
        window: how far a query sees to the left and to the right of the diagonal; -1 means no limit.
        bottom_right: whether the diagonal ends at the last query and key; otherwise it starts at the first ones.
    """
    q = _packed_rows(num_queries, packed[0]) if packed else _one_sequence(num_queries)
    k = _packed_rows(num_keys, packed[1]) if packed else _one_sequence(num_keys)
    diagonal = q.position[:, None] + ((k.length - q.length[:, None]) if bottom_right else 0)
    seen = (q.sequence[:, None] == k.sequence) & (q.sequence[:, None] >= 0)
    left, right = window[0], 0 if causal else window[1]
    if right >= 0:
        seen &= k.position <= diagonal + right
    if left >= 0:
        seen &= k.position >= diagonal - left
    return seen


def _one_sequence(count: int) -> _Tokens:
    return _Tokens(torch.zeros(count, dtype=torch.int64), torch.arange(count), torch.full((count,), count))


def _packed_rows(total: int, packed: Bounds) -> _Tokens:
    rows = _Tokens(*(torch.full((total,), fill) for fill in (-1, 0, 0)))
    lengths = packed.lengths.diff().tolist()
    for index, (start, length) in enumerate(zip(packed.starts.tolist(), lengths)):
        end = min(start + length, total)
        rows.sequence[start:end] = index
        rows.position[start:end] = torch.arange(end - start)
        rows.length[start:end] = length
    return rows
