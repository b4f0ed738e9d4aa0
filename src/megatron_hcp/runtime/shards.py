"""Splits tensors into the parts that context-parallel ranks hold, and says which tokens those parts are.

The index arithmetic (the zigzag) is in core.shards; this module applies it to tensors. Three layouts: `sbhd`
[s, b, heads, d], `bshd` [b, s, heads, d], and `thd` [t, heads, d], which concatenates sequences of any lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from megatron_hcp.core.shards import shard_indices, shard_thd_indices, unshard_indices, unshard_thd_indices

SEQUENCE_DIM = {"sbhd": 0, "bshd": 1, "thd": 0}
"""The dim along which context parallelism cuts a tensor of each layout."""


class Tokens(NamedTuple):
    """Which tokens some rows of a tensor are. Two int64 tensors [rows] on the tensor's device."""

    sequence: torch.Tensor
    """The index of the sequence in the packed batch; 0 unless packed; -1 for padding, which no query attends to."""
    position: torch.Tensor
    """The position within its sequence."""

    def sees(self, keys: Tokens, *, causal: bool, window: int = -1) -> torch.Tensor:
        """[rows, keys' rows], bool: same sequence, with `causal` no key later than the query, none before its window.

        Args:
            window: how many keys before its own a query sees; -1: all of them.
        """
        visible = (self.sequence[:, None] == keys.sequence) & (keys.sequence >= 0)
        distance = self.position[:, None] - keys.position
        visible = visible & (distance >= 0) if causal else visible
        return visible & (distance <= window) if window >= 0 else visible


class Batch:
    """The sequences of one global batch: what any context-parallel rank holds of it follows from the ranks' number.

    Args:
        cu_seqlens_padded: boundaries of the sequences as they lie in memory, from 0 to the total; one sequence of
            length S (sbhd, bshd) is (0, S).
        cu_seqlens: boundaries without padding; sequence i has cu_seqlens[i + 1] - cu_seqlens[i] tokens, then padding.
            None: there is none.
    """

    def __init__(self, cu_seqlens_padded: Sequence[int], cu_seqlens: Sequence[int] | None = None) -> None:
        self.cu_seqlens_padded = tuple(cu_seqlens_padded)
        self.cu_seqlens = self.cu_seqlens_padded if cu_seqlens is None else tuple(cu_seqlens)

    def held_by(self, cp_ranks: Sequence[int], cp_size: int, device: torch.device | str = "cpu") -> Tokens:
        """The tokens of one rank's rows, or of several ranks' rows joined in the order of `cp_ranks`.

        Raises:
            HcpError: a sequence's padded length is no multiple of 2 x cp_size.
        """
        sequence, position = self._all_tokens(device)
        indices = [
            index for cp_rank in cp_ranks for index in shard_thd_indices(self.cu_seqlens_padded, cp_rank, cp_size)
        ]
        rows = torch.tensor(indices, dtype=torch.int64, device=device)
        return Tokens(sequence[rows], position[rows])

    def _all_tokens(self, device: torch.device | str) -> Tokens:
        padded = torch.tensor(self.cu_seqlens_padded, device=device).diff()
        lengths = torch.tensor(self.cu_seqlens, device=device).diff()
        sequence = torch.repeat_interleave(torch.arange(len(padded), device=device), padded)
        starts = torch.tensor(self.cu_seqlens_padded[:-1], device=device)
        position = torch.arange(len(sequence), device=device) - starts[sequence]
        return Tokens(sequence.masked_fill(position >= lengths[sequence], -1), position)


def shard(
    x: torch.Tensor, cp_rank: int, cp_size: int, layout: str, cu_seqlens_padded: Sequence[int] | None = None
) -> torch.Tensor:
    """The part of `x` that a rank holds: a copy, 1/cp_size along the layout's sequence dim.

    Raises:
        HcpError: a (padded) sequence length is no multiple of 2 x cp_size.
    """
    dim = SEQUENCE_DIM[layout]
    if layout == "thd":
        assert cu_seqlens_padded is not None, "thd needs cu_seqlens_padded"
        indices = shard_thd_indices(cu_seqlens_padded, cp_rank, cp_size)
    else:
        indices = shard_indices(x.shape[dim], cp_rank, cp_size)
    return x.index_select(dim, torch.tensor(indices, dtype=torch.int64, device=x.device))


def unshard(
    shards: Sequence[torch.Tensor], layout: str, cu_seqlens_padded: Sequence[int] | None = None
) -> torch.Tensor:
    """The whole tensor from all ranks' shards, given in cp order. `unshard` after `shard` is the identity."""
    dim = SEQUENCE_DIM[layout]
    joined = torch.cat(list(shards), dim)
    if layout == "thd":
        assert cu_seqlens_padded is not None, "thd needs cu_seqlens_padded"
        indices = unshard_thd_indices(cu_seqlens_padded, len(shards))
    else:
        indices = unshard_indices(joined.shape[dim], len(shards))
    return joined.index_select(dim, torch.tensor(indices, dtype=torch.int64, device=joined.device))
