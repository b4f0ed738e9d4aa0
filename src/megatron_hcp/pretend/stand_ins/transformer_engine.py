"""Transformer Engine's own Python, its compiled kernels replaced by functions that return the right shape.

Its constructors, its choice of an attention backend and every assertion of its context parallelism are upstream's.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins import device
from megatron_hcp.pretend.stand_ins.contract import stands_for

STANDS_FOR = "the kernels of Transformer Engine and FlashAttention 2"
CANNOT_TELL = "numbers, FP8 (its autocast does nothing), userbuffers, what a kernel itself refuses"

PACKAGE = "transformer_engine.pytorch"
_FOLDER = f"{PACKAGE}.attention.dot_product_attention"


def install(folder: Path, version: str) -> None:
    """Imports the release that lies in `folder`, and replaces what would call a kernel."""
    from megatron_hcp.proofs.te_cpu import load as te

    release = te.load(folder, version)
    te.use_flash(release, 2)
    device.install()  # te_cpu silences CUDA in its own way
    # Before 2.4 all of the attention is one module.
    backends = sys.modules.get(f"{_FOLDER}.backends") or sys.modules.get(f"{PACKAGE}.attention")
    for module in (backends, release.context_parallel):
        for name, kind in list(vars(module).items()):
            if inspect.isclass(kind) and issubclass(kind, torch.autograd.Function) and _is_attention(name):
                setattr(kind, "apply", staticmethod(_attention_of(kind)))  # noqa: B010
        for name in ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_func_v3", "flash_attn_varlen_func_v3"):
            setattr(module, name, lambda q, k, v, *_, **__: _attend(q, k, v))
    _replace_modules()
    _replace_compiled(sys.modules["transformer_engine_torch"])


def _is_attention(name: str) -> bool:
    return name.startswith(("FusedAttnFunc", "AttnFuncWithCP"))


def _replace_modules() -> None:
    import transformer_engine.pytorch as te

    top: Any = sys.modules["transformer_engine"]
    top.pytorch, top.common = te, sys.modules["transformer_engine.common"]
    for kind in (te.Linear, te.LayerNormLinear):
        kind.forward = _linear
    for kind in (te.LayerNorm, te.RMSNorm):
        kind.forward = _norm
    if hasattr(te, "GroupedLinear"):
        te.GroupedLinear.forward = _grouped_linear
    graph: Any = sys.modules.get(f"{PACKAGE}.graph")
    if hasattr(graph, "make_weak_ref"):
        graph.make_weak_ref = lambda tensors: tensors
    base: Any = sys.modules[f"{PACKAGE}.module.base"]
    base.initialize_ub = _entered(base.initialize_ub)
    for name in ("fp8_autocast", "fp8_model_init", "autocast", "quantized_model_init"):
        if hasattr(te, name):
            setattr(te, name, _entered(getattr(te, name)))


def _replace_compiled(compiled: Any) -> None:
    """The kernels that megatron-core calls itself."""
    for name in ("scaled", "scaled_masked", "scaled_upper_triang_masked", "scaled_aligned_causal_masked"):
        setattr(compiled, f"{name}_softmax_forward", lambda x, *_, **__: x.softmax(-1))
        setattr(compiled, f"{name}_softmax_backward", lambda grad, *_, **__: grad * 1)
    compiled.device_supports_multicast = lambda *_: True


def _entered(real: Callable[..., Any]) -> Callable[..., Any]:
    """A context manager that does nothing, called as the real function is: FP8's, and the start of userbuffers."""
    signature = inspect.signature(real)

    def enter(*args: Any, **kwargs: Any) -> Any:
        signature.bind(*args, **kwargs)
        RECORD.used(f"transformer_engine.{real.__name__}")
        return contextlib.nullcontext()

    return enter


@stands_for("transformer_engine.attention", lambda q, k, v: (*q.shape[:-1], v.shape[-1]))
def _attend(q: Any, k: Any, v: Any) -> Any:
    """[..., heads, head_dim] of q and v: [..., q's heads, v's head_dim], and a gradient to all three."""
    out = q.mean(-1, keepdim=True).expand(*q.shape[:-1], v.shape[-1])
    return (out + 0 * (k.sum() + v.sum())).contiguous()


def _attention_of(kind: Any) -> Callable[..., Any]:
    """`apply` of an attention's autograd function, bound to the names of its own arguments."""
    signature = inspect.signature(kind.forward)

    def apply(*args: Any) -> Any:
        bound = signature.bind(None, *args).arguments
        if "qkv" in bound:
            q, k, v = bound["qkv"].unbind(-3)
        elif "kv" in bound:
            q, (k, v) = bound["q"], bound["kv"].unbind(-3)
        else:
            q, k, v = bound["q"], bound["k"], bound["v"]
        group = bound.get("cp_group")
        if group is not None and kind.__name__.endswith("A2A"):
            size = torch.distributed.get_world_size(group)
            for name, tensor in (("q", q), ("k", k)):
                if tensor.shape[-2] % size:
                    raise NotImplementedError(f"cp_comm_type a2a: {tensor.shape[-2]} heads of {name} on {size} ranks")
        return _attend(q, k, v)

    return apply


@stands_for("transformer_engine.norm", lambda self, inp, *_, **__: inp.shape)
def _norm(self: Any, inp: Any, *_: Any, **__: Any) -> Any:
    _must_fit(inp.shape[-1] == self.weight.numel(), inp, self.weight)
    return inp * self.weight.to(inp.dtype)


def _must_fit(fits: bool, inp: Any, weight: Any) -> None:
    if not fits:
        raise NotImplementedError(f"a kernel of {tuple(inp.shape)} with a weight of {tuple(weight.shape)}")


def _linear_gives(self: Any, inp: Any, *_: Any, **__: Any) -> tuple[int, ...]:
    size = self.tp_size if getattr(self, "sequence_parallel", False) else 1
    first = {"column": inp.shape[0] * size, "row": inp.shape[0] // size}.get(self.parallel_mode, inp.shape[0])
    return (first, *inp.shape[1:-1], self.out_features)


@stands_for("transformer_engine.linear", _linear_gives)
def _linear(self: Any, inp: Any, *_: Any, **__: Any) -> Any:
    """Linear and LayerNormLinear: [..., in] -> [..., out], gathered or scattered along the sequence."""
    normed = inp
    if getattr(self, "layer_norm_weight", None) is not None:
        _must_fit(inp.shape[-1] == self.layer_norm_weight.shape[0], inp, self.layer_norm_weight)
        normed = inp * self.layer_norm_weight.to(inp.dtype)
    parts = [getattr(self, name) for name in self.weight_names]
    weight = torch.cat(parts) if len(parts) > 1 else parts[0]
    _must_fit(inp.shape[-1] == weight.shape[1], inp, weight)
    x = normed
    size, is_scattered = getattr(self, "tp_size", 1), getattr(self, "sequence_parallel", False)
    if is_scattered and self.parallel_mode == "column" and size > 1:
        x = torch.cat([x] * size, dim=0)
    out = x @ weight.to(x.dtype).t()
    if is_scattered and self.parallel_mode == "row" and size > 1:
        _must_fit(out.shape[0] % size == 0, out, weight)
        out = out[: out.shape[0] // size] * 1
    bias = None
    if getattr(self, "use_bias", False):
        biases = [getattr(self, name) for name in self.bias_names]
        bias = torch.cat(biases) if len(biases) > 1 else biases[0]
        if not self.return_bias and bias.numel() and not getattr(self, "gemm_bias_unfused_add", False):
            out = out + bias.to(out.dtype)
    result = [out]
    if getattr(self, "return_bias", False):
        result.append(bias)
    if getattr(self, "return_layernorm_output", False):
        result.append(normed)
    return tuple(result) if len(result) > 1 else out


@stands_for("transformer_engine.grouped_linear", lambda self, inp, *_, **__: (*inp.shape[:-1], self.out_features))
def _grouped_linear(self: Any, inp: Any, m_splits: Any, *_: Any, **__: Any) -> Any:
    _must_fit(inp.shape[-1] == self.weight0.shape[1], inp, self.weight0)
    out = inp @ self.weight0.to(inp.dtype).t()
    return (out, [None] * self.num_gemms) if getattr(self, "return_bias", False) else out
