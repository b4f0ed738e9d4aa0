"""A small model for dynamic CP: packed causal attention over whichever group a micro-batch uses, in float64.

It has only what determines the loss of a real model: token and position embeddings, two layers of
attention whose keys and values travel around the group (their gradients travel back to the owner), a linear head, and a
masked loss over the next tokens. Sequences are packed, padded and cut in a zigzag, as megatron-core cuts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from megatron_hcp.core.shards import cu_seqlens_of
from megatron_hcp.dcp import padded_length
from megatron_hcp.runtime.attention import Masking, attend_alone, p2p
from megatron_hcp.runtime.shards import Batch, Tokens

VOCAB_SIZE, HIDDEN, HEADS, LAYERS = 23, 12, 2, 2


class Corpus(NamedTuple):
    """The step's sequences, the same on every rank: `tokens` and `loss_mask` [sequence][length]."""

    tokens: list[torch.Tensor]
    loss_mask: list[torch.Tensor]

    @property
    def lengths(self) -> list[int]:
        return [len(tokens) for tokens in self.tokens]

    @property
    def num_loss_tokens(self) -> int:
        """T: the tokens of the whole step that carry the loss."""
        return int(sum(mask.sum() for mask in self.loss_mask))


def draw_corpus(lengths: Sequence[int], seed: int = 0) -> Corpus:
    """Random tokens, and a random mask that leaves every sequence at least one loss token; the last has no label."""
    random = torch.Generator().manual_seed(seed)
    tokens = [torch.randint(VOCAB_SIZE, (length,), generator=random) for length in lengths]
    masks = [torch.rand(length, generator=random) < 0.6 for length in lengths]
    for mask in masks:
        mask[0], mask[-1] = True, False
    return Corpus(tokens, masks)


class Packed(NamedTuple):
    """The sequences of one group as its ranks hold them: each tensor has the rows of one rank."""

    batch: Batch
    tokens: torch.Tensor
    labels: torch.Tensor
    places: Tokens
    loss_mask: torch.Tensor
    """Bool [rows]: the row's label counts."""


def pack(corpus: Corpus, samples: Sequence[int], cp_size: int, cp_rank: int) -> Packed:
    """What a rank of a group of `cp_size` holds of these sequences."""
    lengths = [len(corpus.tokens[sample]) for sample in samples]
    padded = [padded_length(length, cp_size) for length in lengths]
    batch = Batch(cu_seqlens_of(padded), cu_seqlens_of(lengths))
    places = batch.held_by([cp_rank], cp_size)
    is_token = places.sequence >= 0

    def rows(values: Sequence[torch.Tensor]) -> torch.Tensor:
        joined = torch.cat(list(values))
        starts = torch.tensor(cu_seqlens_of(lengths))
        index = starts[places.sequence.clamp(min=0)] + places.position
        return torch.where(is_token, joined[index.clamp(max=len(joined) - 1)], torch.zeros((), dtype=joined.dtype))

    return Packed(
        batch,
        rows([corpus.tokens[sample] for sample in samples]),
        rows([corpus.tokens[sample].roll(-1) for sample in samples]),
        places,
        rows([corpus.loss_mask[sample] for sample in samples]).bool() & is_token,
    )


class ToyModel(torch.nn.Module):  # type: ignore[misc]
    """Next-token losses [rows] of a packed shard; the group may change from call to call."""

    def __init__(self, longest: int, seed: int = 1) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embedding = torch.nn.Embedding(VOCAB_SIZE, HIDDEN, dtype=torch.float64)
            self.positions = torch.nn.Embedding(longest, HIDDEN, dtype=torch.float64)
            self.qkv = torch.nn.ModuleList(_linear(HIDDEN, 3 * HIDDEN) for _ in range(LAYERS))
            self.out = torch.nn.ModuleList(_linear(HIDDEN, HIDDEN) for _ in range(LAYERS))
            self.head = _linear(HIDDEN, VOCAB_SIZE)

    def forward(self, packed: Packed, group: dist.ProcessGroup | None) -> torch.Tensor:
        """`group` is the group of the micro-batch; None where one rank holds whole sequences."""
        positions = packed.places.position.clamp(max=self.positions.num_embeddings - 1)  # padding may lie beyond
        x = self.embedding(packed.tokens) + self.positions(positions)
        masking = Masking(packed.batch, causal=True, scale=(HIDDEN / HEADS) ** -0.5)
        for qkv, out in zip(self.qkv, self.out):
            q, k, v = (part.reshape(len(x), 1, HEADS, -1) for part in qkv(x).chunk(3, dim=-1))
            attended = attend_alone(q, k, v, masking) if group is None else p2p(q, k, v, masking, group)
            x = x + out(torch.tanh(attended.reshape(len(x), HIDDEN)))
        return torch.nn.functional.cross_entropy(self.head(x), packed.labels, reduction="none")


def _linear(inputs: int, outputs: int) -> torch.nn.Linear:
    return torch.nn.Linear(inputs, outputs, dtype=torch.float64)
