"""Attention backends: which of them support context parallelism, and which features they support."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import (
    FUSED,
    NOT_LOCAL,
    comm_types,
    has_fp8_attention,
    layer_types,
    local_attention_fact,
    under_cp,
    uses_cp,
)
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    CORE_DOT_PRODUCT_ATTENTION,
    EXTENSION_TE,
    LM_LANGUAGE_MODULE,
    TE_ATTENTION_UTILS,
    TRANSFORMER_CONFIG,
)
from megatron_hcp.rules.view import View

_NO_BACKEND = "no attention backend is left, and the first forward pass fails"
_MASKS = {
    "causal_bottom_right": "bottom-right causal masks",
    "padding_causal_bottom_right": "bottom-right causal masks",
    "arbitrary": "arbitrary masks",
}


def _max_logit_fact(v: View) -> str | None:
    """The fact that requests the maximum attention logit; None if none does."""
    return next((name for name in ("qk_clip", "log_max_attention_logit") if v.get(name)), None)


def _impossible_mask(v: View) -> str | None:
    """The requested mask that no backend supports under CP; None if there is none."""
    mask = v.get("attention_mask")
    if mask == "padding" and not v.get("thd"):
        return "padding masks outside packed data"
    return _MASKS.get(mask) if isinstance(mask, str) else None


@rule(
    "CP016",
    "error crash first-forward",
    source=(
        TE_ATTENTION_UTILS.says("get_attention_backend", "Disabling FlashAttention for max_logit", ">=2.9"),
        TE_ATTENTION_UTILS.says(
            "get_attention_backend", "Disabling FusedAttention for max_logit with qkv_format = thd", ">=2.9,<2.11"
        ),
        EXTENSION_TE.says(
            "TEDotProductAttention.__init__", "qk-clip is only supported in TE 2.9.0 and later", ">=0.16"
        ),
    ),
    applies=lambda v: _max_logit_fact(v) is not None,
    good=Example("mlm", "--qk-clip --attention-backend fused", "te=2.9"),
    bad=Example("mlm", "--qk-clip --attention-backend flash"),
)
def backend_returns_max_logit(v: View) -> Problem | None:
    """The maximum attention logit is requested from a backend that returns it.

    QK clipping and logging the maximum logit disable FlashAttention, and every backend for FP8 attention. Transformer
    Engine 2.9 and 2.10 reject packed data as well. Unfused attention would work, but not under CP.
    """
    name = _max_logit_fact(v)
    assert name is not None
    off = Fix({name: False}, f"no {name}")
    message = "no attention backend returns the maximum logit here: the first forward pass fails"
    if v.attention_backend == "flash":
        return Problem(
            message,
            f"{name} with attention_backend flash",
            "cuDNN attention (fused, or auto)",
            ("attention_backend", name),
            (FUSED, off),
        )
    if v.get("fp8") and has_fp8_attention(v):
        return Problem(
            message, f"{name} with FP8 attention", "16-bit attention", ("fp8_dot_product_attention", name), (off,)
        )
    if not v.at_least("te", "2.9"):
        return Problem(
            "the maximum logit needs a newer Transformer Engine: building the model fails",
            f"{name} with Transformer Engine {v.te}",
            "Transformer Engine 2.9 or newer",
            (name, "te"),
            (off,),
        )
    if v.get("thd") and not v.at_least("te", "2.11"):
        return Problem(
            message,
            f"{name} with packed data on Transformer Engine {v.te}",
            "Transformer Engine 2.11 or newer",
            (name, "packing", "te"),
            (off,),
        )
    return None


@rule(
    "CP006",
    "error crash init",
    source=(
        CORE_DOT_PRODUCT_ATTENTION.says(
            "DotProductAttention.__init__",
            "Context parallelism is only supported by TEDotProductAttention!",
            ">=0.12",
            branches=("main",),
        ),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "fallback_to_eager_attn only supports all_gather communication type",
            ">=0.19",
            where="checkout",
            branches=("dev",),
        ),
    ),
    applies=uses_cp,
    good=Example("mlm", "--context-parallel-size 2 --transformer-impl transformer_engine"),
    bad=Example("mlm", "--context-parallel-size 2 --transformer-impl local"),
)
def attention_comes_from_transformer_engine(v: View) -> Problem | None:
    """Context parallelism uses Transformer Engine's attention.

    Ring, all-to-all and all-gather are implemented in Transformer Engine. megatron-core's local attention asserts that
    the context-parallel size is 1; the config constructor doesn't check it. The dev branch's own attention supports
    only gathering keys and values.
    """
    name = local_attention_fact(v)
    if name is None or (v.get("mcore_branch") == "dev" and comm_types(v) == ("all_gather",)):
        return None
    fact = v.fact(name)
    key = (fact.key if fact else None) or name
    return Problem(
        message="megatron-core's own attention doesn't support context parallelism: building the model fails",
        found=f"{key.rpartition('.')[2]} local at context_parallel_size {v.cp}",
        wanted="Transformer Engine's attention",
        facts=(name, "cp"),
        fixes=(Fix({name: NOT_LOCAL[name]}, "attention by Transformer Engine"),),
    )


@rule(
    "CP012",
    "error crash first-forward",
    source=(
        TE_ATTENTION_UTILS.says(
            "get_attention_backend",
            "Disabling UnfusedDotProductAttention as it does not support context parallelism",
            ">=2.3",
        ),
        TE_ATTENTION_UTILS.says("get_attention_backend", "causal_bottom_right masking", ">=2.3"),
    ),
    applies=uses_cp,
    good=Example("mlm", "--context-parallel-size 2 --attention-backend fused"),
    bad=Example("mlm", "--context-parallel-size 2 --attention-backend unfused"),
    limit_of="te",
)
def backend_and_mask_support_cp(v: View) -> Problem | None:
    """The attention backend and the mask support context parallelism.

    Transformer Engine drops every backend that doesn't support the request, with only a debug message; unfused
    attention is always dropped under CP, and no backend supports bottom-right or arbitrary masks there. NVTE_DEBUG=1
    NVTE_DEBUG_LEVEL=2 prints the reasons.
    """
    if v.attention_backend == "unfused" and v.attention_variant != "dsv4_hybrid":  # which has its own attention
        return Problem(
            message=f"Transformer Engine's unfused attention doesn't support context parallelism: {_NO_BACKEND}",
            found=f"attention_backend unfused at context_parallel_size {v.cp}",
            wanted="auto, fused or flash",
            facts=("attention_backend", "cp"),
            fixes=(
                Fix({"attention_backend": "auto"}, "Transformer Engine chooses"),
                Fix({"attention_backend": "fused"}, "cuDNN attention"),
            ),
        )
    mask = _impossible_mask(v)
    if mask is None:
        return None
    return Problem(
        message=f"context parallelism doesn't support {mask}: {_NO_BACKEND}",
        found=f"attention mask {v.attention_mask} at context_parallel_size {v.cp}",
        wanted="a causal mask, or none",
        facts=("attention_mask", "cp"),
        fixes=(Fix({"attention_mask": "causal"}, "a causal mask"),),
    )


@rule(
    "CP013",
    "error crash first-forward",
    source=(
        TE_ATTENTION_UTILS.says(
            "get_attention_backend",
            "Disabling FlashAttention 4 as it does not support context parallelism yet",
            ">=2.15,<2.19",
        ),
        TE_ATTENTION_UTILS.says(
            "get_attention_backend",
            'fa4_cp_supported = cp_comm_type in ["p2p", "all_gather", "a2a"]',
            ">=2.19",
            branches=(),
        ),
        LM_LANGUAGE_MODULE.says(
            "LanguageModule._set_attention_backend",
            "if version != self.config.flash_attention_version",
            ">=0.19",
            branches=("main",),
        ),
    ),
    applies=under_cp(lambda v: v.get("attention_backend") == "flash" and str(v.get("flash_attention_version")) == "4"),
    good=Example("mlm", "--context-parallel-size 2 --attention-backend flash --flash-attention-version 4", "te=2.19"),
    bad=Example("mlm", "--context-parallel-size 2 --attention-backend flash --flash-attention-version 4", "te=2.18"),
)
def pinned_fa4_supports_cp(v: View) -> Problem | None:
    """FlashAttention 4 is pinned only where it supports context parallelism.

    megatron-core pins a generation by disabling the others, which Transformer Engine honors from 2.18 on. 2.18 has no
    context parallelism for generation 4; from 2.19 on it supports p2p, all_gather and a2a, but not a2a+p2p.
    """
    if not v.at_least("te", "2.18"):
        return None  # the pin is ignored: another generation runs
    if "a2a+p2p" in layer_types(v):
        why, wanted = "for a2a+p2p", "another communication type, or another backend"
    elif not v.at_least("te", "2.19"):
        why, wanted = f"in Transformer Engine {v.te}", "Transformer Engine 2.19, or another backend"
    else:
        return None
    return Problem(
        message=f"FlashAttention 4 has no CP {why}, and other backends are off: {_NO_BACKEND}",
        found="flash_attention_version 4 with attention_backend flash",
        wanted=wanted,
        facts=("flash_attention_version", "attention_backend", "cp_comm_type"),
        fixes=(
            Fix({"flash_attention_version": "3"}, "FlashAttention 3 (Hopper only)"),
            Fix({"attention_backend": "fused", "flash_attention_version": None}, "cuDNN attention"),
        ),
    )
