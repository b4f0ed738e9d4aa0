"""Transformer Engine's linear layers and norms, computed by torch; its attention runs as `proofs.te_cpu` has it."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import torch

from megatron_hcp.pretend.record import RECORD
from megatron_hcp.proofs.te_cpu import load as te
from megatron_hcp.proofs.te_cpu.module import load_with_module

STANDS_FOR = "Transformer Engine's linear layers and norms at TP 1, cuDNN's attention and FlashAttention 2"
CANNOT_TELL = "what a kernel itself refuses or rounds"
CUDNN, FLASH_2 = "cuDNN", "FlashAttention 2"
EPS = 1e-5
_RELEASE: list[te.Release] = []


def install(folder: Path, version: str) -> None:
    """Imports the release; its attention then takes float64 on the CPU, and says which kernel it called."""
    _RELEASE[:] = [load_with_module(folder, version)]
    import transformer_engine.pytorch as pytorch

    top: Any = sys.modules["transformer_engine"]
    top.pytorch, top.common = pytorch, sys.modules["transformer_engine.common"]
    for kind in (pytorch.Linear, pytorch.LayerNormLinear):
        kind.forward = _linear
    for kind in (pytorch.LayerNorm, pytorch.RMSNorm):
        kind.forward = lambda self, x, *_, **__: _norm(x, self.weight, getattr(self, "bias", None))
    for module in [module for name, module in sys.modules.items() if name.startswith("transformer_engine.pytorch")]:
        for name, kernel in (
            ("fused_attn_fwd", CUDNN),
            ("_flash_attn_fwd", FLASH_2),
            ("_flash_attn_varlen_fwd", FLASH_2),
        ):
            if callable(getattr(module, "__dict__", {}).get(name)):
                setattr(module, name, _named(getattr(module, name), kernel))


def _named(real: Any, kernel: str) -> Any:
    @functools.wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        RECORD.used(kernel)
        return real(*args, **kwargs)

    return call


def choose(*, is_flash: bool) -> None:
    """FlashAttention 2 is installed beside cuDNN, or is not; upstream chooses among what is."""
    te.use_flash(_RELEASE[0], 2 if is_flash else 0)


def _norm(x: Any, weight: Any, bias: Any, is_rms: bool | None = None) -> Any:
    """LayerNorm where there is a bias, RMSNorm where there is none."""
    if bias is not None and not is_rms:
        return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, EPS)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def _linear(self: Any, x: Any, *_: Any, **__: Any) -> Any:
    """[..., in] -> [..., out], after the norm of a LayerNormLinear."""
    scale = getattr(self, "layer_norm_weight", None)
    if scale is not None:
        x = _norm(x, scale, getattr(self, "layer_norm_bias", None), self.normalization == "RMSNorm")
    normed = x
    weight = torch.cat([getattr(self, name) for name in self.weight_names])
    out = x @ weight.to(x.dtype).t()
    biases = [getattr(self, name) for name in self.bias_names] if getattr(self, "use_bias", False) else []
    bias = torch.cat(biases) if biases else None
    if bias is not None and not self.return_bias:
        out = out + bias
    gives = (out,) + ((bias,) if self.return_bias else ())
    gives += (normed,) if getattr(self, "return_layernorm_output", False) else ()
    return gives if len(gives) > 1 else out
