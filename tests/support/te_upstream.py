"""Transformer Engine's own verdict on an attention call, by running its pure functions out of an unpacked release.

`get_attention_backend` chooses the backends that are left, `attn_forward_func_with_cp` is the gate in front of every
context-parallel attention, and the assertions at the start of the chosen implementation are evaluated one by one. All
run without torch: what they call is replaced by stand-ins that know only the case. The stand-in for cuDNN takes every
call in 16 bits, but packed data and FP8 from Hopper on only.
"""

from __future__ import annotations

import builtins
import logging
import math
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from support.upstream_code import Anything, Lookup, Member, Named, asserts, function, parameters

_FOLDER = "transformer_engine/pytorch/attention/dot_product_attention/"
_IMPLEMENTATIONS = {
    "p2p": "AttnFuncWithCPAndKVP2P",
    "all_gather": "AttnFuncWithCPAndKVAllGather",
    "a2a": "AttnFuncWithCPAndQKVOA2A",
}
_FLAGS = {"flash": "100", "fused": "010", "unfused": "001", "auto": "111"}
NO_BACKEND = "No dot product attention backend is available for the provided inputs"


class Call(NamedTuple):
    """One attention call: CP over two ranks, what the layer asks for, and what is installed."""

    comm: str = "p2p"
    fmt: str = "sbhd"
    backend: str = "auto"
    arch: int = 90
    flash: int = 2
    heads: int = 8
    kv_heads: int = 8
    window: tuple[int, int] = (-1, 0)
    softmax: str = "vanilla"
    bias: bool = False
    mla: bool = False
    fp8: str = ""
    max_logit: bool = False
    padded: bool = False
    deterministic: bool = False
    pinned: bool = False  # only the installed generation of FlashAttention may run
    cudnn: tuple[int, int, int] = (9, 21, 0)


class _Group:
    pass


class _Tensor:
    def __init__(self, heads: int, channels: int) -> None:
        self.shape = (64, 1, heads, channels)


class Release:
    """One unpacked release of Transformer Engine."""

    def __init__(self, folder: Path) -> None:
        self.version = folder.name.rpartition("-")[2]
        self.gate = folder / _FOLDER / "context_parallel.py"
        self.chooser = folder / _FOLDER / "utils.py"
        self.knows_sinks = "softmax_type" in parameters(self.gate, "attn_forward_func_with_cp")
        self.knows_max_logit = "return_max_logit" in parameters(self.gate, "attn_forward_func_with_cp")

    def verdict(self, call: Call) -> str | None:
        """What this release says against the call; None if attention goes on to communicate."""
        if self._is_unknown_feature(call):
            return "megatron-core asserts a newer Transformer Engine"
        flash, fused = self._backends(call)
        if not flash and not fused:
            return NO_BACKEND
        return self._gate(call, fused=not flash or (fused and call.arch >= 90))

    def _is_unknown_feature(self, call: Call) -> bool:
        return (call.softmax != "vanilla" and not self.knows_sinks) or (call.max_logit and not self.knows_max_logit)

    def _backends(self, call: Call) -> tuple[bool, bool]:
        recipe = SimpleNamespace(
            fp8_dpa=bool(call.fp8),
            fp8_mha=False,
            delayed=lambda: call.fp8 == "delayed",
            **{
                name: lambda: False
                for name in (
                    "float8_current_scaling",
                    "mxfp8",
                    "float8_block_scaling",
                    "nvfp4",
                    "custom",
                    "float8_per_tensor_scaling",
                )
            },
        )
        layout = "_".join([call.fmt] * 3)
        mask = "padding_causal" if call.fmt == "thd" else "causal"
        half = object()
        tensor = type("Tensor", (), {})
        attention = SimpleNamespace(
            qkv_type=tensor,
            qkv_dtype=half,
            nominal_dtype=half,
            qkv_layout=layout,
            batch_size=1,
            num_heads=call.heads,
            num_gqa_groups=call.kv_heads,
            max_seqlen_q=64,
            max_seqlen_kv=64,
            num_tokens_q=64,
            num_tokens_kv=64,
            head_dim_qk=192 if call.mla else 128,
            head_dim_v=128,
            attn_mask_type=mask,
            window_size=call.window,
            bottom_right_diagonal=False,
            softcap=0.0,
            alibi_slopes_shape=None,
            core_attention_bias_type="post_scale_bias" if call.bias else "no_bias",
            core_attention_bias_shape=(1, call.heads, 64, 64) if call.bias else None,
            core_attention_bias_requires_grad=False,
            pad_between_seqs=call.padded,
            attention_dropout=0.0,
            context_parallel=True,
            cp_comm_type=call.comm,
            cp_size=2,
            cp_size_a2a=2 if call.comm == "a2a" else 1,
            deterministic=call.deterministic,
            is_training=True,
            fp8=bool(call.fp8),
            fp8_meta={"recipe": recipe},
            inference_params=None,
            softmax_type=call.softmax,
            return_max_logit=call.max_logit,
            cuda_graph=False,
            num_splits=1,
            softmax_scale=1.0,
            fp8_output=False,
            checkpoint_core_attention=False,
            has_score_mod=False,
            has_score_mod_bprop=False,
        )
        kernels = SimpleNamespace(
            is_installed=True,
            v3_is_installed=call.flash == 3,
            v4_is_installed=call.flash == 4,
            version="2.8",
            fa3_version="3.0",
            fa4_version="4.0",
            version_required=None,
            max_version="9",
            v4_validate_head_dims=None,
            v4_warning_printed=True,
            v3_warning_printed=True,
            warning_printed=True,
            fa3_supports_softcap=True,
            **{f"v{name}_plus": True for name in ("2", "2_1", "2_3", "2_4", "2_4_1", "2_5", "2_5_7", "2_6_0", "2_7_0")},
        )
        names = ("No_Backend", "F16_max512_seqlen", "F16_arbitrary_seqlen", "FP8")
        members = {name: Member(number) for number, name in enumerate(names)}
        takes = call.arch >= 90 or (call.fmt != "thd" and not call.fp8)
        chosen = members["No_Backend" if not takes else "FP8" if call.fp8 else "F16_arbitrary_seqlen"]
        lookup = Lookup(members)
        namespace = Named(
            os=os,
            logging=logging,
            math=math,
            PkgVersion=lambda text: text,
            fields=lambda _: (),
            AttentionLogging=SimpleNamespace(_log_level=logging.CRITICAL, _stream_handler=logging.NullHandler()),
            torch=SimpleNamespace(
                Tensor=tensor,
                bfloat16=half,
                float16=object(),
                float8_e4m3fn=object(),
                compiler=SimpleNamespace(is_compiling=lambda: False),
                version=SimpleNamespace(cuda="13"),
                cuda=SimpleNamespace(current_device=lambda: 0),
                empty=Anything(),
                float32=object(),
            ),
            FlashAttentionUtils=kernels,
            FusedAttnBackend=lookup,
            _NVTE_FLASH_ATTN=1,
            te=SimpleNamespace(__version__="2"),
            get_device_compute_capability=lambda: divmod(call.arch, 10),
            get_cudnn_version=lambda: call.cudnn,
            get_qkv_format=lambda *_: (call.fmt,) * 3,
            check_set_window_size=lambda mask, window: window,
            tex=SimpleNamespace(
                get_fused_attn_backend=lambda *_, **__: chosen,
                NVTE_Fused_Attn_Backend=SimpleNamespace(**{f"NVTE_{name}": members[name] for name in names}),
            ),
            # 2.19 asks by place for a number, later releases by name for a number and a reason.
            _get_fused_attn_backend=lambda *args, **_: chosen if args else (chosen, ""),
            is_in_onnx_export_mode=lambda: False,
        )
        exec(function(self.chooser, "get_attention_backend"), namespace)
        steps = ModuleType("context_parallel")
        steps.cp_per_step_configs = lambda *_, **__: [None]  # type: ignore[attr-defined]
        modules = {_FOLDER.rstrip("/").replace("/", ".") + ".context_parallel": steps}
        flags = dict(zip(("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"), _FLAGS[call.backend]))
        parents = {".".join(name.split(".")[:count]): ModuleType("x") for name in modules for count in range(1, 5)}
        if call.pinned:
            flags |= {f"NVTE_FLASH_ATTN_V{other}": "0" for other in (2, 3, 4) if other != call.flash}
        with patch.dict(os.environ, flags), patch.dict(sys.modules, {**parents, **modules}):
            flash, _, fused, *_ = namespace["get_attention_backend"](attention)
        return bool(flash), bool(fused)

    def _gate(self, call: Call, *, fused: bool) -> str | None:
        refused: list[str] = []
        fmt = "bshd" if call.fmt == "sbhd" and not fused else call.fmt
        strategy = type("Strategy", (), {"NO_LOAD_BALANCE": object()})
        strategy.DUAL_CHUNK_SWAP = strategy()  # type: ignore[attr-defined]
        mask = "padding_causal" if fmt == "thd" else "causal"
        bias = "post_scale_bias" if call.bias else "no_bias"
        key, value = _Tensor(call.kv_heads, 192 if call.mla else 128), _Tensor(call.kv_heads, 128)

        def implementation(kind: str) -> SimpleNamespace:
            def apply(*_: Any) -> None:
                known = {
                    "q": _Tensor(call.heads, 192 if call.mla else 128),
                    "k": key,
                    "v": value,
                    "qkv_format": fmt,
                    "attn_mask_type": mask,
                    "padding": "padding" in mask,
                    "causal": True,
                    "attn_bias_type": bias,
                    "window_size": call.window,
                    "use_fused_attention": fused,
                    "use_flash_attn_3": call.flash == 3,
                    "use_flash_attn_4": call.flash == 4,
                    "cp_size": 2,
                    "seq_dim": 0,
                    "seq_dim_qkv": 0,
                    "fa_utils": SimpleNamespace(v2_3_plus=True),
                }
                for test, text in asserts(self.gate, _IMPLEMENTATIONS[kind]):
                    if set(test.co_names) <= {*known, *dir(builtins), "shape", "v2_3_plus", "__class__"} and not eval(
                        test, {}, known
                    ):
                        refused.append(text)

            return SimpleNamespace(apply=apply)

        namespace = Named(
            get_distributed_world_size=lambda group: 2,
            dist_group_type=_Group,
            get_cudnn_version=lambda: call.cudnn,
            is_graph_capturing=lambda: False,
            CPLoadBalancingStrategy=strategy,
            **{name: implementation(kind) for kind, name in _IMPLEMENTATIONS.items()},
        )
        exec(function(self.gate, "attn_forward_func_with_cp"), namespace)
        recipe = SimpleNamespace(fp8_dpa=bool(call.fp8))
        given = {
            "cp_group": _Group(),
            "cp_comm_type": call.comm,
            "qkv_format": fmt,
            "attn_mask_type": mask,
            "attn_bias_type": bias,
            "attn_bias": Anything() if call.bias else None,
            "use_fused_attention": fused,
            "window_size": call.window,
            "softmax_type": call.softmax,
            "fp8": bool(call.fp8),
            "fp8_meta": {"recipe": recipe},
            "q": key,
            "k": key,
            "v": value,
            "load_balancing_strategy": strategy.DUAL_CHUNK_SWAP,  # type: ignore[attr-defined]
        }
        names = parameters(self.gate, "attn_forward_func_with_cp")
        try:
            namespace["attn_forward_func_with_cp"](**{name: given.get(name, Anything()) for name in names})
        except (AssertionError, ValueError) as error:
            return str(error)
        return refused[0] if refused else None
