"""Batch-invariant attention."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import TRANSFORMER_CONFIG
from megatron_hcp.rules.view import View

_MEMBER = "_target_: megatron.core.transformer.enums.AttnBackend, _call_: true, _args_: [1]"


def _is_a_word(v: View) -> bool:
    """Whether a Bridge configuration gives the backend as a plain word: it stays a string, never an enum member."""
    fact = v.fact("attention_backend")
    assert fact is not None, "the rule has read it"
    if v.dialect != "bridge" or fact.origin != "launch":
        return False
    return all(setting.key != f"{fact.key}._target_" for setting in v.launch.reading.settings)


@rule(
    "ATTN003",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "Batch invariant mode only supports FlashAttention", ">=0.16"
        ),
    ),
    applies=lambda v: bool(v.get("batch_invariant")),
    good=Example("mlm", "--batch-invariant-mode --attention-backend flash", "mcore=0.16.1"),
    bad=Example("mlm", "--batch-invariant-mode --attention-backend fused", "mcore=0.16.1"),
)
def batch_invariant_mode_has_flash_attention(v: View) -> Problem | None:
    """Batch-invariant mode uses the flash backend.

    FlashAttention's kernels can run with a fixed schedule. megatron-core has asserted this in the model config since
    0.16; leaving the choice to Transformer Engine (auto) is not enough. Bridge passes its configuration on unchanged:
    there the string "flash" is not a member of AttnBackend, and an override cannot express one.
    """
    is_flash = v.attention_backend == "flash"
    if (is_flash and not _is_a_word(v)) or not v.at_least("mcore", "0.16"):
        return None
    return Problem(
        message="batch-invariant mode requires the flash backend: the model config is rejected",
        found=f"batch_invariant_mode with attention_backend {v.attention_backend}{' as a string' if is_flash else ''}",
        wanted=f"the enum member, in YAML: {_MEMBER}" if v.dialect == "bridge" else "attention_backend flash",
        facts=("batch_invariant", "attention_backend"),
        fixes=(
            Fix({"attention_backend": "flash"}, "flash attention"),
            Fix({"batch_invariant": False}, "results may depend on the batch"),
        ),
    )


RULES = (batch_invariant_mode_has_flash_attention,)
