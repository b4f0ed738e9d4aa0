"""One call of context-parallel attention: its settings, its inputs, and the right answer from a single process.

The right answer comes from autograd over the whole sequence, and from this project's own rule of which token sees
which (`runtime.shards`); it shares nothing with the stand-ins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import NamedTuple

import torch

from megatron_hcp.core.shards import cu_seqlens_of, shard_indices, shard_thd_indices
from megatron_hcp.proofs.te_cpu.layouts import DIM_OF_TOKENS, from_bhsd, to_bhsd
from megatron_hcp.runtime.shards import Batch

COMMS = ("p2p", "all_gather", "a2a", "a2a+p2p")
LAYOUTS = ("sbhd", "bshd", "thd", "thd padded")
KERNELS = ("cuDNN", "FlashAttention 2", "FlashAttention 3")
FEATURES = ("causal", "full", "GQA", "window", "sinks", "MLA heads", "no load balance")
HEAD_DIM, MLA_HEAD_DIM, BATCH = 16, 24, 2
WINDOW = (5, 0)


class AttentionCall(NamedTuple):
    """One cell of the matrix."""

    comm: str
    layout: str
    kernel: str
    feature: str

    def __str__(self) -> str:
        return ", ".join(self)

    @property
    def format(self) -> str:
        """qkv_format."""
        return self.layout.split()[0]

    @property
    def is_causal(self) -> bool:
        return self.feature != "full"

    @property
    def is_padded(self) -> bool:
        return self.layout == "thd padded"

    @property
    def flash(self) -> int:
        """The generation of FlashAttention; 0 for cuDNN."""
        return KERNELS.index(self.kernel) and KERNELS.index(self.kernel) + 1

    @property
    def window(self) -> tuple[int, int]:
        """Transformer Engine's window_size."""
        if self.feature == "window":
            return WINDOW
        return (-1, 0) if self.is_causal else (-1, -1)


def every_case() -> list[AttentionCall]:
    """The whole matrix.

    DotProductAttention turns sbhd into bshd for FlashAttention before context parallelism sees it, so that pair doesn't
    occur. Without load balancing there is only all_gather: an assertion rejects the rest.
    """
    cases = [AttentionCall(*names) for names in product(COMMS, LAYOUTS, KERNELS, FEATURES)]
    return [
        case
        for case in cases
        if (case.layout != "sbhd" or case.flash == 0)
        and (case.feature != "no load balance" or case.comm == "all_gather")
    ]


class Inputs:
    """The tensors of a case on `cp_size` ranks, the same on every rank, and what attention makes of them.

    Lengths grow with cp_size so that every chunk has several tokens; padding ends each packed sequence at a different
    place, one of them with whole chunks of padding. `stretch` makes every sequence so many times longer. `padding`:
    tokens at the end of each sequence that count as padding, where a case has padding and they are not the usual ones.
    """

    def __init__(
        self, case: AttentionCall, cp_size: int, stretch: int = 1, padding: Sequence[int] | None = None
    ) -> None:
        self.case, self.cp_size = case, cp_size
        self.heads = 2 * cp_size
        self.kv_heads = cp_size if case.feature == "GQA" else 2 * cp_size
        self.head_dim = MLA_HEAD_DIM if case.feature == "MLA heads" else HEAD_DIM
        self.scale = self.head_dim**-0.5
        is_packed = case.format == "thd"
        self.padded = [times * cp_size * stretch for times in ((4, 8, 2) if is_packed else (8,))]
        usual = [times * stretch for times in (3, 5, 3)]
        shorter = (padding or usual) if case.is_padded else (0, 0, 0)
        self.lengths = [padded - less for padded, less in zip(self.padded, shorter)]
        generator = torch.Generator().manual_seed(1)

        def tensor(heads: int, head_dim: int) -> torch.Tensor:
            tokens = {"thd": (sum(self.padded),), "sbhd": (self.padded[0], BATCH), "bshd": (BATCH, self.padded[0])}
            return torch.randn(*tokens[case.format], heads, head_dim, generator=generator, dtype=torch.float64)

        self.q, self.k = tensor(self.heads, self.head_dim), tensor(self.kv_heads, self.head_dim)
        self.v, dout = tensor(self.kv_heads, HEAD_DIM), tensor(self.heads, HEAD_DIM)
        self.sinks = torch.randn(1, self.heads, 1, 1, generator=generator, dtype=torch.float64)
        dim = DIM_OF_TOKENS[case.format]
        self.dout = dout * self.counts.view([-1 if axis == dim else 1 for axis in range(dout.dim())])

    @cached_property
    def counts(self) -> torch.Tensor:
        """Which tokens are not padding, bool [tokens]."""
        return self._tokens.sequence >= 0

    def rows_of(self, cp_rank: int) -> torch.Tensor:
        """The tokens that a rank holds, in its order."""
        total = sum(self.padded)
        if self.case.feature == "no load balance":
            share = total // self.cp_size
            return torch.arange(cp_rank * share, (cp_rank + 1) * share)
        if self.case.format == "thd":
            return torch.tensor(shard_thd_indices(cu_seqlens_of(self.padded), cp_rank, self.cp_size))
        return torch.tensor(shard_indices(total, cp_rank, self.cp_size))

    def cu_seqlens(self, *, padded: bool) -> torch.Tensor:
        """Boundaries as Transformer Engine expects them, int32; those of a batch without packing."""
        lengths: Sequence[int] = self.padded if padded else self.lengths
        lengths = lengths if self.case.format == "thd" else self.padded * BATCH
        return torch.tensor(cu_seqlens_of(lengths), dtype=torch.int32)

    @cached_property
    def expected(self) -> list[torch.Tensor]:
        """Output, dq, dk, dv of all tokens and, with sinks, their gradient."""
        leaves = [x.clone().requires_grad_() for x in (self.q, self.k, self.v, self.sinks)]
        q, k, v = (to_bhsd(x, self.case.format) for x in leaves[:3])
        k, v = (x.repeat_interleave(self.heads // self.kv_heads, dim=1) for x in (k, v))
        scores = (q @ k.transpose(-1, -2) * self.scale).masked_fill(~self._sees, -math.inf)
        if self.case.feature == "sinks":
            scores = torch.cat([scores, leaves[3].expand(len(q), -1, scores.shape[2], 1)], dim=-1)
            v = torch.cat([v, torch.zeros_like(v[:, :, :1])], dim=2)
        nothing = scores.isneginf().all(-1, keepdim=True)
        out = from_bhsd(scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0) @ v, self.case.format)
        out.backward(self.dout)
        return [out.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    @property
    def _sees(self) -> torch.Tensor:
        seen = self._tokens.sees(self._tokens, causal=self.case.is_causal)
        if self.case.feature == "window":
            distance = self._tokens.position[:, None] - self._tokens.position
            seen = seen & (distance <= WINDOW[0])
        return seen

    @cached_property
    def _tokens(self):  # type: ignore[no-untyped-def]
        return Batch(cu_seqlens_of(self.padded), cu_seqlens_of(self.lengths)).held_by([0], 1)
