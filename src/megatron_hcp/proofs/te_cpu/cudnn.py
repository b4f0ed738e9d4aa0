"""cuDNN's attention: Transformer Engine's `fused_attn_fwd` and `fused_attn_bwd`, with arguments by name.

Both functions bind what a release passes to its own signature first (`load.in_place_of`), because the order of the
arguments changes between releases; what plays no part on a CPU (quantizers, random numbers, FP8 formats) ends up in
`rest`.
"""

from __future__ import annotations

from typing import Any

import torch

from megatron_hcp.proofs.te_cpu.kernels import attend, attend_backward, sink_backward
from megatron_hcp.proofs.te_cpu.layouts import DIM_OF_TOKENS, from_bhsd, lse_type, to_bhsd
from megatron_hcp.proofs.te_cpu.visible import Bounds, visible


def fused_attn_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    softmax_type: str = "vanilla",
    softmax_offset: torch.Tensor | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The output, and what the backward needs: log-sum-exp, random-number state, the sinks."""
    layout = _layout(rest)
    sink = _sink(softmax_type, softmax_offset, q.shape[-2])
    seen = _seen(layout, q, k, rest)
    queries, keys, values = (to_bhsd(x, layout) for x in (q, k, v))
    out, lse = attend(queries, keys, values, seen, _scale(q, rest), sink)
    if layout == "thd":
        lse = lse[0].transpose(0, 1)
    aux = [lse.to(lse_type(q)).contiguous().unsqueeze(-1), torch.zeros(2, dtype=torch.int64)]
    if softmax_offset is not None and softmax_type != "vanilla":
        aux.append(softmax_offset)
    return from_bhsd(out, layout), aux


def fused_attn_bwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    d_o: torch.Tensor,
    *,
    aux_ctx_tensors: list[torch.Tensor],
    softmax_type: str = "vanilla",
    **rest: Any,
) -> tuple[torch.Tensor | None, ...]:
    """dq, dk, dv, the gradient of the bias (none), and that of the sinks, if any, [1, heads, 1, 1]."""
    layout = _layout(rest)
    lse = aux_ctx_tensors[0].squeeze(-1)
    if layout == "thd":
        lse = lse.transpose(0, 1).unsqueeze(0)
    dout, queries, keys, values, out = (to_bhsd(x, layout) for x in (d_o, q, k, v, o))
    seen = _seen(layout, q, k, rest)
    gradients = attend_backward(dout, queries, keys, values, out, lse, seen, _scale(q, rest))
    dq, dk, dv = (from_bhsd(x, layout) for x in gradients)
    joined = rest["qkv_layout"].split("_")[-1].find("2")
    if joined >= 0:  # before 2.8 keys and values are one tensor, as the layout's name says, and so are their gradients
        dk, dv = torch.stack([dk, dv], dim=joined).unbind(joined)
    sink = _sink(softmax_type, aux_ctx_tensors[2] if len(aux_ctx_tensors) > 2 else None, q.shape[-2])
    if sink is None:
        return dq, dk, dv, None
    return dq, dk, dv, None, sink_backward(dout, out, lse, sink).to(sink.dtype).view(1, -1, 1, 1)


def _layout(rest: dict[str, Any]) -> str:
    return "".join(letter for letter in rest["qkv_layout"].split("_")[0] if letter.isalpha())


def _scale(q: torch.Tensor, rest: dict[str, Any]) -> float:
    scale = rest.get("attn_scale")
    return float(q.shape[-1] ** -0.5 if scale is None else scale)


def _sink(softmax_type: str, offset: torch.Tensor | None, heads: int) -> torch.Tensor | None:
    """One logit per head: learned, 0 with "off-by-one", none with "vanilla"."""
    if softmax_type == "vanilla":
        return None
    return torch.zeros(heads) if offset is None else offset.reshape(-1)


def _seen(layout: str, q: torch.Tensor, k: torch.Tensor, rest: dict[str, Any]) -> torch.Tensor:
    packed = None
    if layout == "thd":
        bounds = [rest["cu_seqlens_q"], rest["cu_seqlens_kv"]]
        padded = [rest.get("cu_seqlens_q_padded"), rest.get("cu_seqlens_kv_padded")]
        packed = tuple(Bounds(real if start is None else start, real) for real, start in zip(bounds, padded))
    mask_type = rest.get("attn_mask_type", "padding")
    dim = DIM_OF_TOKENS[layout]
    return visible(
        q.shape[dim],
        k.shape[dim],
        causal="causal" in mask_type,
        window=tuple(rest.get("window_size") or (-1, -1)),
        bottom_right="bottom_right" in mask_type or bool(rest.get("bottom_right_diagonal")),
        packed=packed,  # type: ignore[arg-type]
    )
