"""Transformer Engine's tensor layouts, and [batch, heads, tokens, head_dim], which the kernels here use."""

from __future__ import annotations

import torch

DIM_OF_TOKENS = {"sbhd": 0, "bshd": 1, "thd": 0}
_AS_BHSD = {"sbhd": (1, 2, 0, 3), "bshd": (0, 2, 1, 3)}
_FROM_BHSD = {"sbhd": (2, 0, 1, 3), "bshd": (0, 2, 1, 3)}


def to_bhsd(x: torch.Tensor, layout: str) -> torch.Tensor:
    return x.transpose(0, 1).unsqueeze(0) if layout == "thd" else x.permute(_AS_BHSD[layout])


def from_bhsd(x: torch.Tensor, layout: str) -> torch.Tensor:
    return (x.squeeze(0).transpose(0, 1) if layout == "thd" else x.permute(_FROM_BHSD[layout])).contiguous()


def lse_type(q: torch.Tensor) -> torch.dtype:
    """Kernels return float32; here it is float64 if the tensors are, so that no accuracy is lost."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32
