"""The sizes of a small GPT, and data that it can learn: cut for a context-parallel rank, packed or not."""

from __future__ import annotations

from inspect import signature
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from megatron_hcp.core.shards import cu_seqlens_of, shard_thd_indices

VOCAB_SIZE = 96


class GptShape(NamedTuple):
    """Sizes of the model and its data, divisible by TP 2 and by an a2a level of 2."""

    num_layers: int = 2
    hidden_size: int = 64
    heads: int = 8
    kv_heads: int = 4
    seq_length: int = 32
    global_batch_size: int = 4
    seqlens_padded: tuple[int, ...] = ()
    """Lengths of the packed sequences as they lie in a row of seq_length tokens; if empty, a row is one sequence."""
    seqlens: tuple[int, ...] = ()
    """The same without padding."""
    masked: bool = True
    """Whether about a fifth of the labels are masked, unevenly over the context-parallel ranks."""


def global_batch(shape: GptShape, step: int, device: torch.device) -> dict[str, torch.Tensor]:
    """One step's data, the same on every rank: tokens, labels, loss_mask, position_ids, [batch, seq_length].

    Each token is determined by the one before, so there is something to learn.
    """
    draw = torch.Generator().manual_seed(1000 + step)
    text = torch.randint(VOCAB_SIZE, (shape.global_batch_size, shape.seq_length + 1), generator=draw)
    for i in range(shape.seq_length):
        text[:, i + 1] = (5 * text[:, i] + 7) % VOCAB_SIZE
    mask = torch.rand(shape.global_batch_size, shape.seq_length, generator=draw)
    position_ids = torch.arange(shape.seq_length).expand(shape.global_batch_size, -1)
    if shape.seqlens:
        starts = cu_seqlens_of(shape.seqlens_padded)
        for start, end, length in zip(starts, starts[1:], shape.seqlens):
            mask[:, start + length : end] = 0
    batch = {
        "tokens": text[:, :-1],
        "labels": text[:, 1:],
        "loss_mask": (mask > (0.2 if shape.masked else 0)).double(),
        "position_ids": position_ids,
    }
    return {name: x.to(device) for name, x in batch.items()}


def on_this_cp_rank(
    batch: dict[str, torch.Tensor], rows: slice = slice(None), cp_group: dist.ProcessGroup | None = None
) -> dict[str, torch.Tensor]:
    """This rank's tokens of some sequences, cut by megatron-core's own get_batch_on_this_cp_rank.

    `cp_group` None means megatron-core's global CP group. It is named in the call: from 0.18 on, upstream cuts over all
    ranks where no group is given, and has another parameter before it.
    """
    from megatron.core import parallel_state, utils

    cp_group = cp_group or parallel_state.get_context_parallel_group()
    named = {"is_hybrid_cp": False} if "is_hybrid_cp" in signature(utils.get_batch_on_this_cp_rank).parameters else {}
    cut: dict[str, torch.Tensor] = utils.get_batch_on_this_cp_rank(
        {name: x[rows] for name, x in batch.items()}, cp_group=cp_group, **named
    )
    return cut


def micro_batch(whole: dict[str, torch.Tensor], row: int, shape: GptShape) -> dict[str, Any]:
    """This rank's tokens of one row of a global batch, and its boundaries as `packed` (None unless packed)."""
    if not shape.seqlens:
        return {**on_this_cp_rank(whole, slice(row, row + 1)), "packed": None}
    from megatron.core import parallel_state
    from megatron.core.packed_seq_params import PackedSeqParams

    rank, size = parallel_state.get_context_parallel_rank(), parallel_state.get_context_parallel_world_size()
    device = whole["tokens"].device
    padded, real = (
        torch.tensor(cu_seqlens_of(lengths), dtype=torch.int32, device=device)
        for lengths in (shape.seqlens_padded, shape.seqlens)
    )
    longest = max(shape.seqlens_padded)
    packed = PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=real,
        cu_seqlens_kv=real,
        cu_seqlens_q_padded=padded,
        cu_seqlens_kv_padded=padded,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )
    mine = torch.tensor(shard_thd_indices(padded.tolist(), rank, size), device=device)
    return {**{name: x[row : row + 1, mine] for name, x in whole.items()}, "packed": packed}
