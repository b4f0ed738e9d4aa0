"""Kinds of attention under CP: windows, sinks, biases, FP8 and MLA, by communication type and Transformer Engine."""

from __future__ import annotations

from megatron_hcp.core import releases
from megatron_hcp.rules.cp.view import (
    FUSED,
    WITHOUT_FP8_ATTENTION,
    comm_types,
    has_fp8_attention,
    has_window,
    is_dsa,
    layer_types,
    type_fixes,
    under_cp,
    windowed_types,
)
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import TE_ATTENTION_UTILS, TE_CONTEXT_PARALLEL, TRANSFORMER_UTILS
from megatron_hcp.rules.view import View


def _has_deterministic_sinks(v: View) -> bool:
    """Whether cuDNN attention with sinks has a deterministic backward pass here."""
    if v.at_least("te", releases.TE_PACKED_SINKS):
        return False
    return v.arch == "sm90" or (v.arch not in ("sm80", "sm86", "sm89") and not v.at_least("te", "2.9"))


def _is_wide_mla(v: View) -> bool:
    """MLA whose value heads are narrower than its query heads, as Transformer Engine sees them."""
    if not v.mla or is_dsa(v):
        return False
    widths = [v.get(name) for name in ("qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")]
    if None not in widths and widths[0] + widths[1] == widths[2]:
        return False
    # Packed values are padded to the query width: by verl, and by megatron-core from 0.18 on.
    return not v.get("thd") or (v.dialect != "verl" and not v.at_least("mcore", releases.MCORE_PADS_PACKED_VALUES))


_FP8_ATTENTION = (
    "model.context_parallel_size=2 model.fp8=hybrid model.fp8_recipe=delayed model.fp8_dot_product_attention=true"
)
"""Megatron-LM's command line has no option for it."""


@rule(
    "CP009",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp", "Context parallelism does not support sliding window attention with", ">=2.8"
        ),
        TRANSFORMER_UTILS.says("is_layer_window_attention", "layer_number % window_attn_skip_freq != 0", ">=0.15"),
    ),
    applies=under_cp(has_window),
    good=Example("mlm", "--context-parallel-size 2 --cp-comm-type all_gather --window-size 1024,0 --seq-length 4096"),
    bad=Example("mlm", "--context-parallel-size 2 --window-size 1024,0"),
)
def windows_use_a2a_or_all_gather(v: View) -> Problem | None:
    """Layers with a sliding window use a2a or all_gather.

    The ring exchanges whole chunks and has no notion of a window. Transformer Engine silently drops cuDNN attention for
    it and asserts in the remaining path. Layers without a window may stay on the ring: give one type per layer.
    """
    if "p2p" not in windowed_types(v):
        return None
    default = v.cp_comm_type is None or ((fact := v.fact("cp_comm_type")) is not None and fact.origin == "default")
    return Problem(
        message="Transformer Engine doesn't support a sliding window in the p2p ring: the first forward pass fails",
        found=f"window_size {tuple(v.window_size)} in layers with cp_comm_type p2p{' (default)' if default else ''}",
        wanted="a2a or all_gather in the layers that have a window",
        facts=("cp_comm_type", "window_size", "cp"),
        fixes=type_fixes(v, "a2a", "all_gather"),
    )


@rule(
    "CP010",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp", 'softmax_type == "vanilla" or cp_comm_type == "a2a"', ">=2.8"
        ),
        TE_CONTEXT_PARALLEL.says("attn_forward_func_with_cp", "Before cuDNN 9.18.0", ">=2.12"),
        TE_ATTENTION_UTILS.says("get_attention_backend", "for determinism reasons with softmax_type", ">=2.12"),
    ),
    applies=under_cp(lambda v: v.softmax_type not in (None, "vanilla")),
    good=Example(
        "mlm",
        "--context-parallel-size 2 --cp-comm-type a2a --softmax-type off-by-one --num-attention-heads 8",
        "te=2.14",
    ),
    bad=Example("mlm", "--context-parallel-size 2 --softmax-type learnable"),
    limit_of="te",
)
def sinks_use_a2a_and_cudnn(v: View) -> Problem | None:
    """Attention sinks use a2a and cuDNN attention.

    A sink adds a term to each row's softmax, and only the flat all-to-all keeps rows whole. Transformer Engine prints
    'No dot product attention backend is available for the provided inputs'.
    """
    found = f"softmax_type {v.softmax_type}"
    facts: tuple[str, ...] = ("softmax_type", "attention_backend", "cp")
    message = "no backend supports these attention sinks under context parallelism: the first forward pass fails"
    fixes: tuple[Fix, ...] = ()
    if any(kind in ("p2p", "all_gather") for kind in layer_types(v)):
        found += f" with cp_comm_type {' '.join(comm_types(v))}"
        wanted, facts = "a2a in every layer", ("cp_comm_type", "softmax_type", "cp")
        fused = {"attention_backend": "fused"} if v.get("attention_backend") == "flash" else {}
        fixes = tuple(Fix({**fix.edits, **fused}, fix.effect) for fix in type_fixes(v, "a2a"))
    elif v.get("attention_backend") == "flash":
        found += " with attention_backend flash"
        wanted, facts, fixes = "cuDNN attention (fused, or auto)", ("attention_backend", "softmax_type"), (FUSED,)
    elif not v.at_least("te", releases.TE_SINKS):
        message = "attention sinks need a newer Transformer Engine: building the model fails"
        found += f" with Transformer Engine {v.te}"
        wanted, facts = "Transformer Engine 2.8 or newer", ("te", "softmax_type")
    elif v.deterministic and not _has_deterministic_sinks(v):
        found += f" in deterministic mode on Transformer Engine {v.te}"
        wanted, facts = "deterministic_mode off", ("deterministic", "softmax_type")
        fixes = (Fix({"deterministic": False}, "non-deterministic attention"),)
    elif v.get("thd"):
        if v.at_least("te", releases.TE_PACKED_SINKS) and v.at_least("cudnn", releases.CUDNN_PACKED_SINKS):
            return None
        found += f" with packed data on Transformer Engine {v.te}"
        wanted = "Transformer Engine 2.12 and cuDNN 9.18 or newer, or data that is not packed"
        facts = ("softmax_type", "packing", "te")
    else:
        return None
    return Problem(message, found, wanted, facts, fixes)


@rule(
    "CP011",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp", 'use_fused_attention and "padding" not in attn_mask_type', ">=2.3"
        ),
        TE_ATTENTION_UTILS.says("get_attention_backend", "attention bias for THD format", ">=2.3"),
    ),
    applies=under_cp(lambda v: bool(v.get("attention_bias"))),
    good=Example("mlm", "--context-parallel-size 2", "attention_bias=true"),
    bad=Example("mlm", "--context-parallel-size 2 --attention-backend flash", "attention_bias=true"),
    limit_of="te",
)
def bias_uses_the_ring_and_cudnn(v: View) -> Problem | None:
    """An attention bias is used with p2p and cuDNN attention, without packing.

    Only the ring maps each part of the bias to its chunk, and only cuDNN attention accepts it. ALiBi slopes are never
    supported under CP. ModelOpt's EAGLE and relative positions add a bias too.
    """
    message = "no backend supports this attention bias under context parallelism: the first forward pass fails"
    if any(kind in ("a2a", "all_gather") for kind in layer_types(v)):
        return Problem(
            message,
            f"attention bias with cp_comm_type {' '.join(comm_types(v))}",
            "p2p in every layer",
            ("cp_comm_type", "attention_bias"),
            type_fixes(v, "p2p"),
        )
    if v.get("thd"):
        return Problem(
            message, "attention bias with packed data", "data that is not packed", ("packing", "attention_bias")
        )
    if v.get("attention_backend") == "flash":
        return Problem(
            message,
            "attention bias with attention_backend flash",
            "cuDNN attention (fused, or auto)",
            ("attention_backend", "attention_bias"),
            (FUSED,),
        )
    return None


@rule(
    "CP014",
    "error crash first-forward",
    source=(
        TE_ATTENTION_UTILS.says(
            "get_attention_backend",
            "Disabling FlashAttention as it does not support context parallelism with FP8",
            ">=2.3",
        ),
        TE_ATTENTION_UTILS.says("get_attention_backend", "attention and THD format", ">=2.15,<2.19"),
        TE_CONTEXT_PARALLEL.says(
            "_reject_custom_recipe_under_cp", "CustomRecipe + Context Parallelism is not yet supported", ">=2.16"
        ),
    ),
    applies=under_cp(lambda v: has_fp8_attention(v) and v.fp8 is not None),
    good=Example("bridge-provider", f"{_FP8_ATTENTION} model.attention_backend=fused"),
    bad=Example("bridge-provider", f"{_FP8_ATTENTION} model.attention_backend=flash"),
    limit_of="te",
)
def fp8_attention_runs_on_cudnn(v: View) -> Problem | None:
    """FP8 attention uses cuDNN on Hopper or newer.

    Only cuDNN attention supports FP8 under CP, from sm90 on. Transformer Engine 2.15 to 2.18 reject it for packed data,
    and 2.16 and later reject custom recipes.
    """
    facts: tuple[str, ...] = ("fp8_dot_product_attention", "fp8_multi_head_attention")
    if v.get("attention_backend") in ("flash", "unfused"):
        found, wanted = f"attention_backend {v.attention_backend}", "cuDNN attention (fused, or auto)"
        return Problem(
            "under context parallelism only cuDNN supports FP8 attention: the first forward pass fails",
            f"FP8 attention with {found}",
            wanted,
            ("attention_backend", *facts),
            (FUSED, WITHOUT_FP8_ATTENTION),
        )
    if v.fp8_recipe == "custom" and v.at_least("te", "2.16"):
        found, wanted = "the custom recipe", "a built-in recipe"
        facts = ("fp8_recipe", *facts)
    elif v.get("arch") in ("sm80", "sm86", "sm89"):
        found, wanted = str(v.arch), "Hopper or newer"
    elif v.get("thd") and v.at_least("te", "2.15") and not v.at_least("te", "2.19"):
        found, wanted = f"packed data on Transformer Engine {v.te}", "Transformer Engine 2.19 or newer, or no packing"
        facts = ("packing", *facts)
    else:
        return None
    return Problem(
        "FP8 attention under context parallelism is not supported here: the first forward pass fails",
        f"FP8 attention with {found}",
        wanted,
        facts,
        (WITHOUT_FP8_ATTENTION,),
    )


@rule(
    "CP015",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp", "assert not enable_mla or cp_comm_type in [", ">=2.5,<2.15"
        ),
        TE_ATTENTION_UTILS.says("get_attention_backend", "MLA attention", ">=2.5,<2.15"),
    ),
    applies=under_cp(_is_wide_mla),
    good=Example("mlm", "--context-parallel-size 2 --multi-latent-attention --no-rope-fusion", "te=2.5"),
    bad=Example(
        "mlm",
        "--context-parallel-size 2 --multi-latent-attention --no-rope-fusion --cp-comm-type all_gather",
        "te=2.14",
    ),
    limit_of="te",
)
def transformer_engine_supports_mla(v: View) -> Problem | None:
    """Multi-latent attention runs on a Transformer Engine that supports it.

    MLA's query and key heads are wider than its value heads. Transformer Engine before 2.5 has no CP for that; 2.5 to
    2.14 support it in p2p and a2a+p2p, but not with FP8 attention; 2.15 lifts both limits.
    """
    if v.at_least("te", releases.TE_MLA_ALL_TYPES):
        return None
    message = "multi-latent attention under context parallelism is not supported here: the first forward pass fails"
    if not v.at_least("te", releases.TE_MLA):
        return Problem(
            message,
            f"MLA at context_parallel_size {v.cp} with Transformer Engine {v.te}",
            "Transformer Engine 2.5 or newer",
            ("mla", "cp", "te"),
        )
    if any(kind in ("a2a", "all_gather") for kind in layer_types(v)):
        return Problem(
            message,
            f"MLA with cp_comm_type {' '.join(comm_types(v))} and Transformer Engine {v.te}",
            "p2p or a2a+p2p, or Transformer Engine 2.15",
            ("cp_comm_type", "mla", "te"),
            type_fixes(v, "p2p"),
        )
    if v.get("fp8") and has_fp8_attention(v):
        return Problem(
            message,
            f"MLA with FP8 attention and Transformer Engine {v.te}",
            "16-bit attention, or Transformer Engine 2.15",
            ("fp8_dot_product_attention", "mla", "te"),
            (WITHOUT_FP8_ATTENTION,),
        )
    return None
