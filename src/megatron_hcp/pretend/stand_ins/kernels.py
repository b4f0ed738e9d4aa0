"""Compiled packages beside Transformer Engine, by shape: mamba_ssm, causal_conv1d, flash-linear-attention, …"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins.contract import same, stands_for
from megatron_hcp.pretend.stand_ins.kernel import kernel
from megatron_hcp.pretend.stand_ins.packages import make_importable
from megatron_hcp.proofs.te_cpu.absent import empty_module

STANDS_FOR = (
    "mamba_ssm, causal_conv1d, flash-linear-attention, fast_hadamard_transform; APEX's layer norm and fused weight "
    "gradient; torch's flex_attention; FlashMLA and cuDNN's kernels for it; DeepEP's names"
)
CANNOT_TELL = "numbers, and what these kernels refuse"

VERSION = "2.2.4"
_BLOCK = 64


def _called(name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns nothing of a shape."""

    def call(*args: Any, **kwargs: Any) -> Any:
        RECORD.used(name)
        return ours(*args, **kwargs)

    return call


class RMSNorm(torch.nn.Module):  # type: ignore[misc]
    """mamba_ssm's gated norm: its constructor's arguments, [..., hidden_size] -> the same."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        norm_before_gate: bool = True,
        group_size: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.bias = None

    @stands_for("mamba_ssm.RMSNorm", lambda self, x, *_, **__: x.shape)
    def forward(self, x: Any, z: Any = None) -> Any:
        return kernel(lambda x, weight, z: (x * weight.to(x.dtype), (x, weight, z, _row(x))), x, self.weight, z)


def _row(x: Any) -> Any:
    """What a norm keeps of each row, in fp32."""
    return x.new_empty(x.shape[:-1], dtype=torch.float32)


def _split_scan(zxbcdt: Any, conv1d_weight: Any, conv1d_bias: Any, dt_bias: Any, A: Any, D: Any, *args: Any,
                headdim: Any = None, **_: Any) -> Any:  # fmt: skip
    """[batch, length, …] -> [batch, length, heads x headdim]."""
    width = D.numel() * (headdim or 1)

    def body(states: Any, *weights: Any) -> Any:
        out = states[..., :1].expand(*states.shape[:-1], width).contiguous()
        return out, (states, out, *weights)

    return kernel(body, zxbcdt, conv1d_weight, conv1d_bias, dt_bias, A, D)


def _scanned(zxbcdt: Any, conv1d_weight: Any, conv1d_bias: Any, dt_bias: Any, A: Any, D: Any, *_: Any,
             headdim: Any = None, **__: Any) -> tuple[int, ...]:  # fmt: skip
    return (*zxbcdt.shape[:-1], D.numel() * (headdim or 1))


def _chunk_scan(x: Any, dt: Any, A: Any, B: Any, C: Any, *_: Any, D: Any = None, z: Any = None,
                return_final_states: bool = False, **__: Any) -> Any:  # fmt: skip
    """[batch, length, heads, headdim] -> the same; it keeps a sum of dt in fp32 too."""

    def body(x: Any, dt: Any, *others: Any) -> Any:
        out = x * 1
        return out, (out, x, dt, dt.new_empty(dt.shape, dtype=torch.float32), *others)

    out = kernel(body, x, dt, A, B, C, D, z)
    return (out, None) if return_final_states else out


def _kept(x: Any, *_: Any, **__: Any) -> Any:
    """The same shape; the input is kept."""
    return kernel(lambda x: (x * 1, (x,)), x)


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x * 1


def _same_and_state(x: Any, *_: Any, **__: Any) -> Any:
    return _kept(x), None


def _normed(x: Any, *_: Any, **__: Any) -> Any:
    return kernel(lambda x: (x * 1, (x, _row(x))), x)


def _gated_delta(q: Any, k: Any, v: Any, g: Any = None, beta: Any = None, *_: Any, **__: Any) -> Any:
    """[batch, length, heads, head_dim] of v; it keeps a block of 64 for each row and head too."""

    def body(q: Any, k: Any, v: Any, *gates: Any) -> Any:
        return v * 1, (q, _row(q), k, _row(k), v, k.new_empty(*v.shape[:-1], _BLOCK), *gates)

    return kernel(body, q, k, v, g, beta), None


def _attended(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> tuple[int, ...]:
    return (*q.shape[:-1], v.shape[-1])


def _flex_attention(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> Any:
    """[batch, heads, length, head_dim] -> the same, with v's head_dim."""
    return kernel(lambda q, k, v: (q.new_empty(_attended(q, k, v)), (q, k, v, _row(q))), q, k, v)


def _sparse(q: Any, *_: Any, d_v: int = 512, **__: Any) -> Any:
    """[tokens, heads, width] -> [tokens, heads, d_v], and each row's largest logit and log-sum-exp in fp32."""
    return q.new_empty(*q.shape[:-1], d_v), _row(q), _row(q)


def _numbers(like: Any, *shape: int, dtype: Any = torch.float32) -> Any:
    return like.new_empty(shape, dtype=dtype)


def _chosen(scores: Any, *_: Any, top_k: int, **__: Any) -> Any:
    shape = (*scores.shape[:-1], top_k)
    return {"indices": _numbers(scores, *shape, dtype=torch.int32), "values": _numbers(scores, *shape)}


def _of_indexer(q: Any, w: Any, k: Any, *_: Any, **__: Any) -> Any:
    return {"d_index_q": q * 1, "d_weights": w * 1, "d_index_k": k * 1}


DSA: dict[str, Callable[..., Any]] = {
    "indexer_forward_wrapper": lambda q, k, *_, max_seqlen_k=None, **__: {
        "scores": _numbers(q, *q.shape[:-2], max_seqlen_k or k.shape[1])
    },
    "indexer_top_k_wrapper": _chosen,
    "indexer_backward_wrapper": _of_indexer,
    "dense_indexer_backward_wrapper": _of_indexer,
    "sparse_attention_backward_wrapper": lambda q, kv, *_, **__: {"dq": q * 1, "dkv": kv * 1},
    "sparse_attn_score_recompute_wrapper": lambda q, k, lse, chosen, *_, **__: {"target": _numbers(q, *chosen.shape)},
    "dense_attn_score_recompute_wrapper": lambda q, k, *_, **__: {
        "out": _numbers(q, *q.shape[:2], k.shape[1]),
        "denom": _numbers(q, *q.shape[:2]),
    },
}
"""cuDNN's kernels for FlashMLA's sparse attention and its indexer, with the names of megatron-core's interface."""


class LayerNorm:
    """APEX's autograd functions: [..., hidden] -> the same."""

    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, bias: Any, *_: Any, memory_efficient: bool = False) -> Any:
        """Its arguments are looked at before it is called."""

    @staticmethod
    @stands_for("apex.layer_norm", same)
    def apply(x: Any, weight: Any, bias: Any = None, *_: Any) -> Any:
        bias = bias if isinstance(bias, torch.Tensor) else None
        return kernel(lambda x, weight, *_: (x * weight.to(x.dtype), (x, weight, _row(x))), x, weight, bias)


class Buffer:
    """DeepEP's: it can be set up, and is not reached where `experts` stands for the layer."""

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """Set."""


KERNELS: dict[str, dict[str, Any]] = {
    "apex.contrib.layer_norm.layer_norm": {"FastLayerNormFN": LayerNorm},
    "apex.normalization.fused_layer_norm": {"FusedLayerNormAffineFunction": LayerNorm},
    **{
        f"scaled_{kind}_cuda": {
            "forward": stands_for("apex.softmax", same)(lambda x, *_: x.softmax(-1)),
            "backward": stands_for("apex.softmax", same)(_same),
            "get_batch_per_block": _called("apex.softmax", lambda *_: 4),
        }
        for kind in ("softmax", "masked_softmax", "upper_triang_masked_softmax", "aligned_causal_masked_softmax")
    },
    "fused_weight_gradient_mlp_cuda": dict.fromkeys(
        ("wgrad_gemm_accum_fp32", "wgrad_gemm_accum_fp16"), _called("apex.weight_gradient", lambda *_: None)
    ),
    "mamba_ssm.ops.triton.ssd_combined": {
        "mamba_split_conv1d_scan_combined": stands_for("mamba_ssm.split_scan", _scanned)(_split_scan),
        "mamba_chunk_scan_combined": stands_for("mamba_ssm.chunk_scan", same)(_chunk_scan),
    },
    "mamba_ssm.ops.triton.layernorm_gated": {"RMSNorm": RMSNorm},
    "mamba_ssm.ops.triton.selective_state_update": {"selective_state_update": None},
    "flash_mla": {
        "flash_mla_sparse_fwd": stands_for("flash_mla", lambda q, *_, d_v=512, **__: (*q.shape[:-1], d_v))(_sparse)
    },
    "cudnn": {"DSA": SimpleNamespace(**{name: _called("cudnn.DSA", ours) for name, ours in DSA.items()})},
    "deep_ep": {"Buffer": Buffer, "HybridEPBuffer": Buffer},
    "deep_ep.utils": {"EventHandle": Buffer, "EventOverlap": Buffer},
    "causal_conv1d": {
        "causal_conv1d_fn": stands_for("causal_conv1d", same)(_kept),
        "causal_conv1d_update": None,
    },
    "torch.nn.attention.flex_attention": {
        "flex_attention": stands_for("flex_attention", _attended)(_flex_attention),
        "create_block_mask": _called("flex_attention", lambda *_, **__: None),
    },
    "fast_hadamard_transform": {"hadamard_transform": stands_for("hadamard_transform", same)(_same)},
    "fla.modules": {"FusedRMSNormGated": None},
    "fla.modules.convolution": {"causal_conv1d": stands_for("fla.causal_conv1d", same)(_same_and_state)},
    "fla.ops.cp": {"build_cp_context": _called("fla.cp_context", lambda *_, **__: None)},
    "fla.modules.l2norm": {"l2norm": stands_for("fla.l2norm", same)(_normed)},
    "fla.ops.gated_delta_rule": {
        "chunk_gated_delta_rule": stands_for("fla.gated_delta_rule", lambda q, k, v, *_, **__: v.shape)(_gated_delta),
        "fused_recurrent_gated_delta_rule": None,
    },
}


def install() -> None:
    """Makes the packages importable, with the functions that megatron-core calls; other parts of APEX are absent."""
    try:
        importlib.import_module("cudnn")  # its other names are only imported
    except Exception:  # one that is installed may ask for a driver or a library
        sys.modules["cudnn"] = empty_module("cudnn")
    make_importable(KERNELS, VERSION)
    sys.modules["amp_C"] = None  # type: ignore[assignment]
