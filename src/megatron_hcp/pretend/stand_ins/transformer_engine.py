"""Transformer Engine's own Python, its compiled kernels replaced by functions that return the right shape.

Its constructors, its choice of an attention backend and every assertion of its context parallelism are upstream's.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from megatron_hcp.cost.cp_held import outputs_kept
from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins import device
from megatron_hcp.pretend.stand_ins.contract import stands_for
from megatron_hcp.pretend.stand_ins.kernel import kernel

STANDS_FOR = "the kernels of Transformer Engine and FlashAttention 2"
CANNOT_TELL = "numbers, FP8 (its autocast does nothing), userbuffers, what a kernel itself refuses"

PACKAGE = "transformer_engine.pytorch"
RELEASE: list[str | None] = [None]
"""The one that is installed."""
_FOLDER = f"{PACKAGE}.attention.dot_product_attention"


def install(folder: Path, version: str) -> None:
    """Imports the release that lies in `folder`, and replaces what would call a kernel."""
    from megatron_hcp.proofs.te_cpu import load as te

    release = te.load(folder, version)
    RELEASE[:] = [version]
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
    te.LayerNormMLP.forward = _mlp
    if hasattr(te, "GroupedLinear"):
        te.GroupedLinear.forward = _grouped_linear
    graph: Any = sys.modules.get(f"{PACKAGE}.graph")
    if hasattr(graph, "make_weak_ref"):
        graph.make_weak_ref = lambda tensors: tensors
    base: Any = sys.modules[f"{PACKAGE}.module.base"]
    userbuffers = _entered(base.initialize_ub)
    for holder in (PACKAGE, f"{PACKAGE}.module", f"{PACKAGE}.module.base"):
        setattr(sys.modules[holder], "initialize_ub", userbuffers)  # noqa: B010
    for holder, module in list(sys.modules.items()):
        if holder.startswith(PACKAGE) and hasattr(module, "get_ub"):
            module.get_ub = _buffers  # type: ignore[attr-defined]
    for name in ("fp8_autocast", "fp8_model_init", "autocast", "quantized_model_init"):
        if hasattr(te, name):
            setattr(te, name, _entered(getattr(te, name)))


def _replace_compiled(compiled: Any) -> None:
    """The kernels that megatron-core calls itself."""
    for name in ("scaled", "scaled_masked", "scaled_upper_triang_masked", "scaled_aligned_causal_masked"):
        setattr(compiled, f"{name}_softmax_forward", lambda x, *_, **__: x.softmax(-1))
        setattr(compiled, f"{name}_softmax_backward", lambda grad, *_, **__: grad * 1)
    compiled.device_supports_multicast = lambda *_: True
    extensions: Any = sys.modules[f"{PACKAGE}.cpp_extensions"]
    if hasattr(extensions, "general_gemm"):
        extensions.general_gemm = _gemm


def _gemm_gives(A: Any, B: Any, *_: Any, layout: str = "TN", **__: Any) -> tuple[int, ...]:
    return (*(B.shape[1:] if layout[1] == "T" else B.shape[:-1]), A.shape[0 if layout[0] == "T" else 1])


@stands_for("transformer_engine.gemm", _gemm_gives)
def _gemm(A: Any, B: Any, *_: Any, out_dtype: Any = None, layout: str = "TN", **__: Any) -> Any:
    """As cuBLAS has it, B times A, each transposed where the layout's letter says so; and no gradient of a bias."""
    left, right = B.t() if layout[1] == "T" else B, A.t() if layout[0] == "T" else A
    return (left @ right.to(left.dtype)).to(out_dtype or B.dtype), None, None, None


def _buffers(*_: Any, **__: Any) -> Any:
    """Userbuffers of a name, which are not FP8's."""
    RECORD.used("transformer_engine.get_ub")
    return SimpleNamespace(is_fp8_ubuf=lambda: False)


def _entered(real: Callable[..., Any]) -> Callable[..., Any]:
    """A context manager that does nothing, called as the real function is: FP8's, and the start of userbuffers."""
    signature = inspect.signature(real)

    def enter(*args: Any, **kwargs: Any) -> Any:
        signature.bind(*args, **kwargs)
        RECORD.used(f"transformer_engine.{real.__name__}")
        return contextlib.nullcontext()

    return enter


@stands_for("transformer_engine.attention", lambda q, k, v, *_: (*q.shape[:-1], v.shape[-1]))
def _attend(q: Any, k: Any, v: Any, outputs: int = 1) -> Any:
    """[..., heads, head_dim] of q and v: [..., q's heads, v's head_dim], and a gradient to all three.

    Args:
        outputs: tensors of the output's size that it keeps, beside q, k, v and the log-sum-exp of each row.
    """

    def body(q: Any, k: Any, v: Any) -> Any:
        out = q.mean(-1, keepdim=True).expand(*q.shape[:-1], v.shape[-1]).contiguous()
        sums = q.new_empty(q.shape[:-1], dtype=torch.float32)
        copies = [torch.empty_like(out) for _ in range(outputs - 1)]
        return out, (*(one.contiguous() for one in (q, k, v)), out, sums, *copies)

    return kernel(body, q, k, v)


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
        return _attend(q, k, v, _outputs_kept(kind.__name__, group))

    return apply


def _outputs_kept(name: str, group: Any) -> int:
    """How many tensors of the output's size the function keeps; `group`: its CP group, or those of its levels."""
    levels = "a2a+p2p" if isinstance(group, list) else "p2p"
    comm_type = {"A2A": "a2a", "KVAllGather": "all_gather"}
    return outputs_kept(next((kind for end, kind in comm_type.items() if name.endswith(end)), levels), RELEASE[0])


@stands_for("transformer_engine.norm", lambda self, inp, *_, **__: inp.shape)
def _norm(self: Any, inp: Any, *_: Any, **__: Any) -> Any:
    _must_fit(inp.shape[-1] == self.weight.numel(), inp, self.weight)
    return kernel(
        lambda x, weight, *_: (x * weight.to(x.dtype), (x, weight, _row(x))),
        inp,
        self.weight,
        getattr(self, "bias", None),
    )


def _row(x: Any) -> Any:
    """What a norm keeps of each row, in fp32."""
    return x.new_empty(x.shape[:-1], dtype=torch.float32)


def _must_fit(fits: bool, inp: Any, weight: Any) -> None:
    if not fits:
        raise NotImplementedError(f"a kernel of {tuple(inp.shape)} with a weight of {tuple(weight.shape)}")


def _linear_gives(self: Any, inp: Any, *_: Any, **__: Any) -> tuple[int, ...]:
    size = self.tp_size if getattr(self, "sequence_parallel", False) else 1
    first = {"column": inp.shape[0] * size, "row": inp.shape[0] // size}.get(self.parallel_mode, inp.shape[0])
    return (first, *inp.shape[1:-1], self.out_features)


@stands_for("transformer_engine.linear", _linear_gives)
def _linear(self: Any, inp: Any, *_: Any, **__: Any) -> Any:
    """Linear and LayerNormLinear: [..., in] -> [..., out], gathered or scattered along the sequence.

    Both keep the rank's own part of their input; LayerNormLinear also what its norm gives.
    """
    names = list(self.weight_names) + (list(self.bias_names) if getattr(self, "use_bias", False) else [])
    scale = getattr(self, "layer_norm_weight", None)
    if scale is not None:
        _must_fit(inp.shape[-1] == scale.shape[0], inp, scale)

    def body(x: Any, scale: Any, *parts: Any) -> Any:
        normed = x if scale is None else x * scale.to(x.dtype)
        out = _product(self, normed, parts[: len(self.weight_names)])
        kept = (x, *parts) if scale is None else (x, normed, _row(x), scale, *parts)
        if getattr(self, "return_layernorm_output", False):
            return (out, _gathered(self, normed) if self.return_layernorm_output_gathered else normed), kept
        return out, kept

    out = kernel(body, inp, scale, *(getattr(self, name) for name in names))
    normed = out[1:] if isinstance(out, tuple) else ()
    if not getattr(self, "return_bias", False):
        return out
    biases = [getattr(self, name) for name in names[len(self.weight_names) :]] or [None]
    bias = torch.cat(biases) if len(biases) > 1 else biases[0]
    return (out[0] if normed else out, bias, *normed)


def _gathered(self: Any, x: Any) -> Any:
    """The parts of a sequence that the ranks of a tensor-parallel group have."""
    is_scattered = getattr(self, "sequence_parallel", False) and self.parallel_mode == "column"
    return torch.cat([x] * self.tp_size, dim=0) if is_scattered and self.tp_size > 1 else x


def _product(self: Any, x: Any, parts: Any) -> Any:
    weight = torch.cat(parts) if len(parts) > 1 else parts[0]
    _must_fit(x.shape[-1] == weight.shape[1], x, weight)
    size, is_scattered = getattr(self, "tp_size", 1), getattr(self, "sequence_parallel", False)
    x = _gathered(self, x)
    out = x @ weight.to(x.dtype).t()
    if is_scattered and self.parallel_mode == "row" and size > 1:
        _must_fit(out.shape[0] % size == 0, out, weight)
        out = out[: out.shape[0] // size] * 1
    return out


@stands_for("transformer_engine.grouped_linear", lambda self, inp, *_, **__: (*inp.shape[:-1], self.out_features))
def _grouped_linear(self: Any, inp: Any, m_splits: Any, *_: Any, **__: Any) -> Any:
    _must_fit(inp.shape[-1] == self.weight0.shape[1], inp, self.weight0)
    weights = [getattr(self, f"weight{number}") for number in range(self.num_gemms)]
    out = kernel(lambda x, first, *rest: (x @ first.to(x.dtype).t(), (x, first, *rest)), inp, *weights)
    return (out, [None] * self.num_gemms) if getattr(self, "return_bias", False) else out


@stands_for("transformer_engine.mlp", lambda self, inp, *_, **__: inp.shape)
def _mlp(self: Any, inp: Any, *_: Any, **__: Any) -> Any:
    """LayerNormMLP: [..., hidden] -> the same; a sequence that is gathered before it is scattered again."""
    _must_fit(inp.shape[-1] == self.fc1_weight.shape[1], inp, self.fc1_weight)
    _must_fit(inp.shape[-1] == self.fc2_weight.shape[0], inp, self.fc2_weight)
    size = self.tp_size if self.sequence_parallel else 1

    def body(x: Any, scale: Any, first: Any, second: Any) -> Any:
        rows = (x.shape[0] * size, *x.shape[1:-1])
        inner = (x.new_empty(*rows, first.shape[0]), x.new_empty(*rows, second.shape[1]))
        return x * 1, (x, x * scale.to(x.dtype), _row(x), scale, first, second, *inner)

    out = kernel(body, inp, self.layer_norm_weight, self.fc1_weight, self.fc2_weight)
    return (out, self.fc2_bias) if self.return_bias else out
