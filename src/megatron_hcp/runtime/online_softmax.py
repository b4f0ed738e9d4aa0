"""Attention over keys that arrive block by block: softmax without ever seeing a whole row of scores.

For one query with scores s_j the result is sum_j exp(s_j) v_j / sum_j exp(s_j). Both sums can be taken over any part
of the keys and added up later, as long as all parts use the same shift in the exponent; `merge` re-scales two parts
to a common one. That is all a ring needs. Method: Milakov and Gimelshein, arXiv 1805.02867.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Partial(NamedTuple):
    """Attention of some queries over a part of the keys, not yet divided."""

    weighted: torch.Tensor
    """[queries, batch, heads, head_dim_v], fp32 or wider: sum over keys of exp(score - peak) * value."""
    total: torch.Tensor
    """[queries, batch, heads]: sum over keys of exp(score - peak)."""
    peak: torch.Tensor
    """[queries, batch, heads]: the largest score, -inf where no key was visible. A shift, so it carries no gradient."""


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor, scale: float) -> Partial:
    """Queries against one block of keys.

    Args:
        q: [queries, batch, heads, head_dim].
        k, v: [keys, batch, kv_heads, head_dim or head_dim_v]; heads is a multiple of kv_heads (GQA, MQA).
        visible: [queries, keys], bool: which key a query may see. A row may be empty.
        scale: what scores are multiplied by, usually head_dim ** -0.5.
    """
    dtype = torch.promote_types(q.dtype, torch.float32)
    kv_heads = k.shape[2]
    grouped = q.to(dtype).unflatten(2, (kv_heads, -1))
    scores = torch.einsum("qbkgd,tbkd->qbkgt", grouped, k.to(dtype)) * scale
    scores = scores.masked_fill(~visible[:, None, None, None, :], float("-inf"))
    peak = scores.detach().amax(-1)
    weights = torch.exp(scores - _finite(peak)[..., None])
    weighted = torch.einsum("qbkgt,tbkd->qbkgd", weights, v.to(dtype))
    return Partial(weighted.flatten(2, 3), weights.sum(-1).flatten(2, 3), peak.flatten(2, 3))


def merge(a: Partial, b: Partial) -> Partial:
    """Attention of the same queries over the keys of both parts; the order of the parts does not matter."""
    peak = torch.maximum(a.peak, b.peak)
    scale_a = torch.exp(a.peak - _finite(peak))
    scale_b = torch.exp(b.peak - _finite(peak))
    return Partial(
        a.weighted * scale_a[..., None] + b.weighted * scale_b[..., None],
        a.total * scale_a + b.total * scale_b,
        peak,
    )


def finish(part: Partial, sink: torch.Tensor | None = None) -> torch.Tensor:
    """The attention output, [queries, batch, heads, head_dim_v]; zero for a query that saw no key (padding).

    Args:
        sink: [heads]: one more logit of each row, which has no value.
    """
    if sink is not None:
        peak = torch.maximum(part.peak, sink.detach())
        scale = torch.exp(part.peak - peak)
        part = Partial(part.weighted * scale[..., None], part.total * scale + torch.exp(sink - peak), peak)
    total = part.total.masked_fill(part.total == 0, 1)
    return part.weighted / total[..., None]


def _finite(peak: torch.Tensor) -> torch.Tensor:
    # -inf - -inf is NaN: a row without visible keys is shifted by 0 instead, which leaves its weights exp(-inf) = 0.
    return peak.masked_fill(peak == float("-inf"), 0)
