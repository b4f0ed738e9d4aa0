"""Context-parallel attention in four ways, written to be read. Start with `a2a_p2p`, which is hierarchical CP.

Every rank holds the same 1/cp of each sequence in q, k and v (the zigzag of core.shards) and needs the attention
output for its own queries. It has all heads of few tokens, and lacks the other ranks' keys and values:

* `p2p`         keys and values travel around a ring; the softmax is built up block by block. Any number of heads.
* `all_gather`  keys and values of all ranks are gathered first. Any number of heads, memory for the whole sequence.
* `a2a`         trade heads for tokens, attend, trade back. Cheap, but the heads must divide by the group's size.
* `a2a_p2p`     `a2a` inside the inner groups, `p2p` around the outer ring. Only the inner size must divide the heads.

Which keys a query may see depends on the tokens themselves (`Batch`), not on where they are stored, so the same code
handles sbhd, bshd and packed sequences (thd), with or without the causal mask. Real kernels skip what is masked; this
code does not. Gradients come from autograd, through the collectives. Tensors are [tokens, batch, heads, head_dim].

All four compute the same as Transformer Engine's attn_forward_func_with_cp, with the same tokens on every rank:
transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.runtime.collectives import all_gather, all_to_all, ring_shift
from megatron_hcp.runtime.online_softmax import attend, finish, merge
from megatron_hcp.runtime.shards import Batch, Tokens

TOKENS, HEADS = 0, 2


class Masking(NamedTuple):
    """What decides which scores count."""

    batch: Batch
    causal: bool
    scale: float
    window: int = -1
    """How many keys before its own a query sees; -1: all of them."""
    sink: torch.Tensor | None = None
    """[heads]: one more logit of each row, without a value (gpt-oss's sinks)."""

    def seen(self, queries: Tokens, keys: Tokens) -> torch.Tensor:
        """[queries, keys], bool."""
        return queries.sees(keys, causal=self.causal, window=self.window)

    def for_heads_of(self, group: dist.ProcessGroup) -> Masking:
        """Of the run of heads that this member has after an all-to-all."""
        if self.sink is None:
            return self
        return self._replace(sink=self.sink.chunk(dist.get_world_size(group))[dist.get_rank(group)])


def attend_alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, masking: Masking) -> torch.Tensor:
    """Attention without context parallelism: all tokens are here."""
    tokens = masking.batch.held_by([0], 1, q.device)
    return finish(attend(q, k, v, masking.seen(tokens, tokens), masking.scale), masking.sink).to(q.dtype)


def p2p(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, masking: Masking, ring: dist.ProcessGroup, inner_size: int = 1
) -> torch.Tensor:
    """Ring attention. Ring member r stands for the cp ranks r·inner_size … r·inner_size + inner_size - 1."""
    here, size = dist.get_rank(ring), dist.get_world_size(ring)

    def tokens_of(member: int) -> Tokens:
        cp_ranks = range(member * inner_size, (member + 1) * inner_size)
        return masking.batch.held_by(cp_ranks, size * inner_size, q.device)

    mine = tokens_of(here)
    result = None
    travelling = torch.cat([k, v], dim=-1)
    for step in range(size):
        if step:
            travelling = ring_shift(travelling, ring)
        k, v = travelling.split([k.shape[-1], v.shape[-1]], dim=-1)
        visible = masking.seen(mine, tokens_of((here - step) % size))
        block = attend(q, k, v, visible, masking.scale)
        result = block if result is None else merge(result, block)
    assert result is not None
    return finish(result, masking.sink).to(q.dtype)


def a2a_p2p(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, masking: Masking, groups: Sequence[dist.ProcessGroup]
) -> torch.Tensor:
    """Hierarchical CP: `groups` = (inner, outer), as Transformer Engine's cp_group[0] and cp_group[1].

    The inner all-to-all leaves each rank with the tokens of its whole inner group and with 1/inner of the heads; the
    outer ring then only connects ranks that hold the same heads. Cp rank = outer rank · inner size + inner rank:
    with that order the inner groups' joint tokens are themselves a zigzag of the outer size, so the ring stays
    balanced. Groups in the wrong order make this attend to the wrong tokens.
    """
    if len(groups) != 2:
        raise HcpError(f"a2a+p2p got {len(groups)} process groups:", wanted="two, (inner, outer)")
    inner, outer = groups
    _check_heads(q, k, inner)
    q, k, v = (heads_to_tokens(x, inner) for x in (q, k, v))
    masking = masking.for_heads_of(inner)
    return tokens_to_heads(p2p(q, k, v, masking, outer, dist.get_world_size(inner)), inner)


def a2a(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, masking: Masking, group: dist.ProcessGroup) -> torch.Tensor:
    """All tokens of 1/cp of the heads: then nothing is left to exchange. Queries come out in cp-rank order too."""
    _check_heads(q, k, group)
    size = dist.get_world_size(group)
    tokens = masking.batch.held_by(range(size), size, q.device)
    q, k, v = (heads_to_tokens(x, group) for x in (q, k, v))
    masking = masking.for_heads_of(group)
    out = finish(attend(q, k, v, masking.seen(tokens, tokens), masking.scale), masking.sink).to(q.dtype)
    return tokens_to_heads(out, group)


def gathered(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, masking: Masking, group: dist.ProcessGroup
) -> torch.Tensor:
    """`all_gather`: our queries against everyone's keys and values."""
    here, size = dist.get_rank(group), dist.get_world_size(group)
    mine = masking.batch.held_by([here], size, q.device)
    everyone = masking.batch.held_by(range(size), size, q.device)
    k, v = all_gather(k, group, TOKENS), all_gather(v, group, TOKENS)
    return finish(attend(q, k, v, masking.seen(mine, everyone), masking.scale), masking.sink).to(q.dtype)


def heads_to_tokens(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """[tokens, batch, heads, d] -> [tokens · n, batch, heads / n, d]: member i keeps the i-th run of heads."""
    return all_to_all(x, group, split_dim=HEADS, join_dim=TOKENS)


def tokens_to_heads(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """The way back: every member gets its own tokens again, with all heads."""
    return all_to_all(x, group, split_dim=TOKENS, join_dim=HEADS)


def _check_heads(q: torch.Tensor, k: torch.Tensor, group: dist.ProcessGroup) -> None:
    size = dist.get_world_size(group)
    if q.shape[HEADS] % size or k.shape[HEADS] % size:
        raise HcpError(
            f"all-to-all over {size} ranks with {q.shape[HEADS]} query and {k.shape[HEADS]} key/value heads per rank:",
            wanted=f"multiples of {size}",
            do="use a smaller inner size, or p2p",
        )
