"""Hierarchical CP: the attention features that it doesn't support (biases, sinks, windows)."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import HIERARCHICAL, has_window, has_window_at, skip_freq, windowed_types
from megatron_hcp.rules.hcp.launches import BRIDGE, MLM
from megatron_hcp.rules.hcp.view import flat_fixes, runs_hcp, two_levels
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import TE_ATTENTION_UTILS, TE_CONTEXT_PARALLEL
from megatron_hcp.rules.view import View


def _window_fixes(v: View) -> list[Fix]:
    """A list that keeps the hierarchy on the full-attention layers, if there are any."""
    count = v.get("num_layers")
    skip = skip_freq(v)
    if count is None or not 1 < count <= 512 or skip is None:
        return []
    written = v.cp_comm_type if isinstance(v.cp_comm_type, tuple) else (HIERARCHICAL,) * count
    if len(written) != count:
        return []
    kept = tuple(
        "a2a" if item == HIERARCHICAL and has_window_at(skip, layer) else item for layer, item in enumerate(written, 1)
    )
    if HIERARCHICAL not in kept:
        return []
    return [Fix({"cp_comm_type": kept}, "a2a on the windowed layers, the hierarchy on the others")]


@rule(
    "HCP016",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp", "bias type is not supported with hierarchical CP implementation yet!", ">=2.8"
        ),
        TE_ATTENTION_UTILS.says(
            "get_attention_backend", 'elif core_attention_bias_type != "no_bias" and cp_comm_type != "p2p":', ">=2.15"
        ),
    ),
    applies=lambda v: bool(v.get("attention_bias")) and runs_hcp(v),
    good=Example("mlm", "--context-parallel-size 4 --cp-comm-type p2p", "attention_bias=true"),
    bad=Example("mlm", MLM, "attention_bias=true"),
    limit_of="te",
)
def hierarchical_layers_have_no_bias(v: View) -> Problem | None:
    """a2a+p2p is used without an attention bias.

    A bias on the attention scores (relative positions, ModelOpt's EAGLE heads) is rejected for hierarchical CP in the
    first forward pass; before that, the fused backend is filtered out, because it supports a bias only with p2p.
    """
    return Problem(
        message="the first forward pass fails: a bias on the attention scores is not supported with hierarchical CP",
        found="an attention bias with cp_comm_type a2a+p2p",
        wanted='cp_comm_type "p2p", the only one that supports a bias',
        facts=("cp_comm_type", "attention_bias"),
        fixes=tuple(flat_fixes(v, "p2p")),
    )


@rule(
    "HCP017",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp", 'softmax_type == "vanilla" or cp_comm_type == "a2a"', ">=2.8"
        ),
        TE_ATTENTION_UTILS.says("get_attention_backend", 'if context_parallel and cp_comm_type != "a2a":', ">=2.15"),
    ),
    applies=runs_hcp,
    good=Example("bridge", f"{BRIDGE} model.softmax_type=vanilla"),
    bad=Example("bridge", f"{BRIDGE} model.softmax_type=learnable"),
    limit_of="te",
)
def hierarchical_layers_have_no_sinks(v: View) -> Problem | None:
    """a2a+p2p is used without attention sinks.

    Sinks (softmax_type off-by-one or learnable, as in gpt-oss) need a2a and fused attention. Upstream's message is
    usually "No dot product attention backend is available for the provided inputs".
    """
    if v.softmax_type in (None, "vanilla"):
        return None
    return Problem(
        message="the first forward pass fails: no dot product attention backend is left for attention sinks",
        found=f"softmax_type {v.softmax_type} with cp_comm_type a2a+p2p",
        wanted='cp_comm_type "a2a", the only one that supports sinks',
        facts=("cp_comm_type", "softmax_type"),
        fixes=tuple(flat_fixes(v, "a2a")),
    )


@rule(
    "HCP018",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp", "assert not sliding_window_attn or cp_comm_type in [", ">=2.3"
        ),
        TE_ATTENTION_UTILS.says("get_attention_backend", 'and cp_comm_type in ["p2p", "a2a+p2p"]', ">=2.15"),
    ),
    applies=runs_hcp,
    good=Example("bridge", f"{BRIDGE} model.window_size=null"),
    bad=Example("bridge", f"{BRIDGE} model.window_size=[128,0] model.window_attn_skip_freq=null"),
    limit_of="te",
)
def hierarchical_layers_have_no_window(v: View) -> Problem | None:
    """No layer with a sliding window uses a2a+p2p.

    Sliding windows need a2a or all_gather. The first forward pass fails with "Context parallelism doesn't support
    sliding window attention" (2.8 to 2.10 print the literal {cp_comm_type=}), or with no backend.
    """
    if not has_window(v) or HIERARCHICAL not in windowed_types(v):
        return None
    levels = two_levels(v) if v.known("hcp_sizes") else None
    if levels is not None and levels[1] == 1 and v.get("attention_backend") != "fused":
        return None  # Transformer Engine runs a2a, which supports a window: HCP005 reports it
    return Problem(
        message="the first forward pass fails: sliding-window attention is not supported with hierarchical CP",
        found=f"window_size {list(v.window_size)} on layers of type a2a+p2p",
        wanted="a2a or all_gather on the layers that have a window",
        facts=("cp_comm_type", "window_size"),
        fixes=(*_window_fixes(v), *flat_fixes(v, "a2a", "all_gather")),
    )
