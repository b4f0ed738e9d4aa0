"""Attention of one block, forward and backward: the arithmetic behind every compiled attention kernel.

A kernel of cuDNN or FlashAttention returns the output of its block and the log-sum-exp of each query's scores; its
backward is given the output and the log-sum-exp of the whole row, which is how a ring merges blocks. Both are
implemented here in float64, whatever the tensors' type. Tensors are [batch, heads, tokens, head_dim]; `seen` is a bool
tensor [queries, keys].
"""

from __future__ import annotations

import math

import torch


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    seen: torch.Tensor,
    scale: float,
    sink: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, in q's type, and the log-sum-exp [batch, heads, queries] in float64.

    Args:
        sink: one more logit per head [heads] that takes part in the softmax and has no value.

    A query that sees no key has output 0 and log-sum-exp -inf (its sink's logit, with a sink).
    """
    scores = _scores(q, k, seen, scale)
    lse = scores.logsumexp(-1)
    if sink is not None:
        lse = torch.logaddexp(lse, sink.double()[None, :, None].expand_as(lse))
    out = _probabilities(scores, lse) @ _for_each_query_head(v, q).double()
    return out.to(q.dtype), lse


def attend_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    seen: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq, dk and dv of this block, given the output and the log-sum-exp of the whole row."""
    probabilities = _probabilities(_scores(q, k, seen, scale), lse.double())
    dout = dout.double()
    dv = probabilities.transpose(-1, -2) @ dout
    dprobabilities = dout @ _for_each_query_head(v, q).double().transpose(-1, -2)
    dscores = probabilities * (dprobabilities - _row_sums(dout, out)[..., None]) * scale
    dq = dscores @ _for_each_query_head(k, q).double()
    dk = dscores.transpose(-1, -2) @ q.double()
    return dq.to(q.dtype), _for_each_kv_head(dk, k), _for_each_kv_head(dv, v)


def sink_backward(dout: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    """The gradient of each head's sink [heads], float64."""
    share = torch.exp(sink.double()[None, :, None] - lse.double())
    return -(share * _row_sums(dout.double(), out)).sum((0, 2))


def _scores(q: torch.Tensor, k: torch.Tensor, seen: torch.Tensor, scale: float) -> torch.Tensor:
    scores = q.double() @ _for_each_query_head(k, q).double().transpose(-1, -2) * scale
    return scores.masked_fill(~seen, -math.inf)


def _probabilities(scores: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    finite = lse.masked_fill(~lse.isfinite(), 0)  # a row that sees nothing: exp(-inf - 0) is 0, exp(-inf + inf) is not
    return torch.exp(scores - finite[..., None])


def _row_sums(dout: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return (dout * out.double()).sum(-1)


def _for_each_query_head(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Grouped queries: each key/value head serves a run of query heads."""
    return x.repeat_interleave(q.shape[1] // x.shape[1], dim=1)


def _for_each_kv_head(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return gradient.unflatten(1, (x.shape[1], -1)).sum(2).to(x.dtype)
