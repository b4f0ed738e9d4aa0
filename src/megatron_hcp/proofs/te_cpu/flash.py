"""FlashAttention 2.7 and 3: the functions behind `_flash_attn_fwd`, `_flash_attn_varlen_fwd`, `_flash_attn_fwd_v3`.

What matters here: FlashAttention 2 has one tensor of boundaries per side, which says where a sequence starts and how
long it is; FlashAttention 3 has boundaries (where) and, if given, seqused (how much counts). Both align causal masks to
the bottom right. Sources: flash_attn/flash_attn_interface.py, hopper/flash_attn_interface.py and the
docstrings there.
"""

from __future__ import annotations

from typing import Any

import torch

from megatron_hcp.proofs.te_cpu.kernels import attend, attend_backward
from megatron_hcp.proofs.te_cpu.layouts import from_bhsd, lse_type, to_bhsd
from megatron_hcp.proofs.te_cpu.visible import Bounds, visible

Tensors = tuple[Any, ...]


def flash_fwd(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, softmax_scale: float, causal: bool = False, **rest: Any
) -> Tensors:
    """[batch, tokens, heads, head_dim]: the output, log-sum-exp [batch, heads, tokens], -, random state."""
    return _forward("bshd", (q, k, v), _seen("bshd", q, k, causal, rest), softmax_scale)


def flash_bwd(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dq: torch.Tensor,
    dk: torch.Tensor,
    dv: torch.Tensor,
    *,
    softmax_scale: float,
    causal: bool = False,
    **rest: Any,
) -> None:
    """Writes the gradients to dq, dk and dv."""
    seen = _seen("bshd", q, k, causal, rest)
    _backward("bshd", (dout, q, k, v, out), lse, (dq, dk, dv), seen, softmax_scale)


def flash_varlen_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    softmax_scale: float,
    causal: bool = False,
    **rest: Any,
) -> Tensors:
    """[tokens, heads, head_dim]: the output, log-sum-exp [heads, tokens], -, random state."""
    bounds = Bounds(cu_seqlens_q, cu_seqlens_q), Bounds(cu_seqlens_k, cu_seqlens_k)
    return _forward("thd", (q, k, v), _seen("thd", q, k, causal, rest, bounds), softmax_scale)


def flash_varlen_bwd(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dq: torch.Tensor,
    dk: torch.Tensor,
    dv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    softmax_scale: float,
    causal: bool = False,
    **rest: Any,
) -> None:
    """Writes the gradients to dq, dk and dv."""
    bounds = Bounds(cu_seqlens_q, cu_seqlens_q), Bounds(cu_seqlens_k, cu_seqlens_k)
    seen = _seen("thd", q, k, causal, rest, bounds)
    _backward("thd", (dout, q, k, v, out), lse.unsqueeze(0), (dq, dk, dv), seen, softmax_scale)


def flash3_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_new: None,
    v_new: None,
    qv: None,
    out: None,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    cu_seqlens_k_new: None,
    seqused_q: torch.Tensor | None,
    seqused_k: torch.Tensor | None,
    *tail: Any,
    softmax_scale: float,
    causal: bool = False,
    **rest: Any,
) -> Tensors:
    """Either layout: the output, log-sum-exp, -, -."""
    layout = "bshd" if cu_seqlens_q is None else "thd"
    bounds = _with_used(cu_seqlens_q, seqused_q), _with_used(cu_seqlens_k, seqused_k)
    return _forward(layout, (q, k, v), _seen(layout, q, k, causal, rest, bounds), softmax_scale)


def flash3_bwd(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    seqused_q: torch.Tensor | None,
    seqused_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dq: torch.Tensor,
    dk: torch.Tensor,
    dv: torch.Tensor,
    *,
    softmax_scale: float,
    is_causal: bool = False,
    causal: bool = False,
    **rest: Any,
) -> None:
    """Writes the gradients to dq, dk and dv."""
    layout = "bshd" if cu_seqlens_q is None else "thd"
    bounds = _with_used(cu_seqlens_q, seqused_q), _with_used(cu_seqlens_k, seqused_k)
    seen = _seen(layout, q, k, is_causal or causal, rest, bounds)
    lse = lse.unsqueeze(0) if layout == "thd" else lse
    _backward(layout, (dout, q, k, v, out), lse, (dq, dk, dv), seen, softmax_scale)


def _with_used(bounds: torch.Tensor | None, used: torch.Tensor | None) -> Bounds | None:
    if bounds is None:
        return None
    return Bounds(bounds, bounds if used is None else torch.cat([used.new_zeros(1), used.cumsum(0)]))


def _seen(
    layout: str,
    q: torch.Tensor,
    k: torch.Tensor,
    causal: bool,
    rest: dict[str, Any],
    bounds: tuple[Bounds | None, Bounds | None] = (None, None),
) -> torch.Tensor:
    sides = rest.get("window_size_left", -1), rest.get("window_size_right", -1)
    dim = 1 if layout == "bshd" else 0
    queries, keys = bounds
    return visible(
        q.shape[dim],
        k.shape[dim],
        causal=causal,
        window=tuple(rest.get("window_size", sides)),
        bottom_right=True,
        packed=(queries, keys) if queries is not None and keys is not None else None,
    )


def _forward(layout: str, qkv: Tensors, seen: torch.Tensor, scale: float) -> Tensors:
    q, k, v = (to_bhsd(x, layout) for x in qkv)
    out, lse = attend(q, k, v, seen, scale)
    lse = lse[0] if layout == "thd" else lse
    return from_bhsd(out, layout), lse.to(lse_type(qkv[0])).contiguous(), None, torch.zeros(2, dtype=torch.int64)


def _backward(
    layout: str, tensors: Tensors, lse: torch.Tensor, buffers: Tensors, seen: torch.Tensor, scale: float
) -> None:
    dout, q, k, v, out = (to_bhsd(x, layout) for x in tensors)
    for buffer, gradient in zip(buffers, attend_backward(dout, q, k, v, out, lse, seen, scale)):
        buffer.copy_(from_bhsd(gradient, layout))
