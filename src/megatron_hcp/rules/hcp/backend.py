"""Hierarchical CP: Transformer Engine's version, packed data and FP8."""

from __future__ import annotations

from megatron_hcp.core.releases import TE_COMM_TYPE, TE_LEVELS, TE_PACKED_LEVELS
from megatron_hcp.rules.cp.view import has_fp8_attention
from megatron_hcp.rules.hcp.launches import BRIDGE, MLM
from megatron_hcp.rules.hcp.view import flat_fixes, runs_hcp
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import EXTENSION_TE, TE_BACKENDS, TE_CONTEXT_PARALLEL, TE_CP_TEST
from megatron_hcp.rules.view import View

_PADDED = (
    f"{BRIDGE} dataset.packed_sequence_specs.packed_sequence_size=8192 dataset.packed_sequence_specs.pad_seq_to_mult=8 "
)


def _has_padded_rows(v: View) -> bool:
    """Only Bridge's offline packing passes Transformer Engine padded and unpadded lengths that differ."""
    return (
        v.dialect == "bridge"
        and (v.get("packed_sequence_size") or 0) > 0
        and (v.get("pad_seq_to_mult") or 0) > 1
        and runs_hcp(v)
    )


_FP8_ATTENTION = "mixed_precision.fp8=hybrid mixed_precision.fp8_dot_product_attention=true"
"""Megatron-LM's command line has no option for it."""


@rule(
    "HCP013",
    "error crash init",
    source=(
        EXTENSION_TE.says("TEDotProductAttention.__init__", 'must be >= 1.12.0 to support"', ">=0.12"),
        EXTENSION_TE.says("TEDotProductAttention.__init__", 'if is_te_min_version("1.10.0"):', ">=0.12"),
    ),
    applies=runs_hcp,
    good=Example("mlm", MLM, "te=1.12.0"),
    bad=Example("mlm", MLM, "te=1.11.0"),
)
def transformer_engine_supports_levels(v: View) -> Problem | None:
    """a2a+p2p needs Transformer Engine 1.12 or newer.

    megatron-core asserts the version where it builds the attention layers. Below 1.10 it passes no communication type
    at all, so plain p2p runs silently.
    """
    if v.at_least("te", TE_LEVELS):
        return None
    ignored = not v.at_least("te", TE_COMM_TYPE)
    return Problem(
        message=(
            "cp_comm_type is ignored: plain p2p runs"
            if ignored
            else "building the attention layers fails with an assertion about the version"
        ),
        found=f"Transformer Engine {v.te} with cp_comm_type a2a+p2p",
        wanted="Transformer Engine 1.12.0 or newer",
        facts=("te", "cp_comm_type"),
        fixes=tuple(flat_fixes(v, "p2p") if ignored else flat_fixes(v)),
        effect="silent" if ignored else "crash",
        stage="never" if ignored else "init",
    )


@rule(
    "HCP014",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp",
            "format is not supported with hierarchical CP implementation yet!",
            ">=2.8,<2.19",
        ),
        TE_CONTEXT_PARALLEL.says("AttnFuncWithCPAndKVP2P.forward", 'qkv_format != "thd"', ">=2.3,<2.8"),
    ),
    applies=runs_hcp,
    good=Example("mlm", MLM, "te=2.19.0 thd=true"),
    bad=Example("mlm", MLM, "te=2.18.0 thd=true"),
    limit_of="te",
)
def transformer_engine_supports_packed_levels(v: View) -> Problem | None:
    """Packed sequences with a2a+p2p need Transformer Engine 2.19 or newer.

    Up to 2.18 the thd layout is rejected for hierarchical CP in the first forward pass: "thd format is not supported
    with hierarchical CP implementation yet!", or, from 2.15 on with fused attention, "No dot product attention backend
    is available".
    """
    # Either fact alone can clear the launch, so the one that is known is requested first.
    if v.known("te") and v.at_least("te", TE_PACKED_LEVELS):
        return None
    if not v.thd or v.at_least("te", TE_PACKED_LEVELS):
        return None
    return Problem(
        message="the first forward pass fails: packed (thd) input is not supported with hierarchical CP",
        found=f"packed sequences and cp_comm_type a2a+p2p with Transformer Engine {v.te}",
        wanted="Transformer Engine 2.19 or newer, a flat type, or no packing",
        facts=("cp_comm_type", "packing", "te"),
        fixes=tuple(flat_fixes(v)),
    )


@rule(
    "HCP015",
    "warning silent never",
    source=(
        TE_CP_TEST.says("test_cp_with_flash_attention", "pad_between_seqs is not yet supported with A2A+P2P", ">=2.16"),
    ),
    applies=_has_padded_rows,
    good=Example("bridge", _PADDED + "model.attention_backend=fused", "te=2.20.2 flash_attn=3.0.0"),
    bad=Example("bridge", _PADDED + "model.attention_backend=flash", "te=2.20.2 flash_attn=3.0.0"),
)
def padded_packing_avoids_fa3(v: View) -> Problem | None:
    """Padded packing with a2a+p2p doesn't use FlashAttention 3.

    With padding between packed sequences, FlashAttention 3 needs each sequence's unpadded length. Transformer Engine's
    backend selection allows it, and its Python code, run with stand-ins for the kernels, passes the lengths correctly
    from 2.19 on. But its own test of exactly this case is skipped as not supported yet, so no run on the real kernel
    shows that the result is right.
    """
    if v.attention_backend != "flash" or not str(v.flash_attn or "").startswith("3"):
        return None
    if not v.at_least("te", TE_PACKED_LEVELS):
        return None  # HCP014
    return Problem(
        message="neither a check nor an upstream test covers this combination: Transformer Engine's own test skips it",
        found=f"a2a+p2p with FlashAttention {v.flash_attn} and padding between packed sequences "
        f"(pad_seq_to_mult {v.pad_seq_to_mult})",
        wanted="fused attention, whose packed, padded and hierarchical case is tested",
        facts=("attention_backend", "pad_seq_to_mult", "cp_comm_type"),
        fixes=(Fix({"attention_backend": "fused"}, "the tested backend"), *flat_fixes(v)),
    )


@rule(
    "HCP024",
    "info note never",
    source=(
        TE_BACKENDS.says("FusedAttention.forward", 'cp_group[0] if cp_comm_type == "a2a+p2p" else cp_group', ">=2.8"),
    ),
    applies=lambda v: has_fp8_attention(v) and v.get("fp8") is not None and runs_hcp(v),
    good=Example("bridge", f"{BRIDGE} {_FP8_ATTENTION} mixed_precision.fp8_recipe=delayed"),
    bad=Example("bridge", f"{BRIDGE} {_FP8_ATTENTION} mixed_precision.fp8_recipe=tensorwise"),
)
def fp8_scale_is_shared_over_cp(v: View) -> Problem | None:
    """FP8 attention with current scaling uses one scale for the whole CP group.

    With current scaling, the maximum absolute value is reduced over the CP group, so that all ranks quantize with the
    same scale. Under a2a+p2p that group is only the inner level.
    """
    if v.fp8_recipe != "tensorwise":
        return None
    return Problem(
        message="the scale of Q, K and V is shared only within the inner level; ring neighbours may use a different "
        "one",
        found="FP8 attention with current scaling (tensorwise) and cp_comm_type a2a+p2p",
        wanted="compare the loss with BF16 attention before a long run",
        facts=("fp8_recipe", "cp_comm_type"),
        fixes=tuple(flat_fixes(v)),
    )
