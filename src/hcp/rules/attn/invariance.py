"""Attention whose results do not depend on the batch."""

from __future__ import annotations

from hcp.rules.rule import Example, Fix, Problem, rule
from hcp.rules.upstream import TRANSFORMER_CONFIG
from hcp.rules.view import View

_MEMBER = "_target_: megatron.core.transformer.enums.AttnBackend, _call_: true, _args_: [1]"


def _is_a_word(v: View) -> bool:
    """Whether a configuration of Bridge names the backend by a word, which stays text: it equals no member."""
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
    """Batch-invariant mode has flash attention.

    Its kernels have a schedule that can be fixed. megatron-core asserts it in the model's config since 0.16; a backend
    that Transformer Engine chooses (auto) will not do. Bridge hands over what its configuration says: there the word
    flash is no member of AttnBackend, and an override cannot write one.
    """
    is_flash = v.attention_backend == "flash"
    if (is_flash and not _is_a_word(v)) or not v.at_least("mcore", "0.16"):
        return None
    return Problem(
        message="batch-invariant mode takes flash attention alone: the model config is refused",
        found=f"batch_invariant_mode with attention_backend {v.attention_backend}" + (" as a word" if is_flash else ""),
        wanted=f"the member of the enum, in YAML: {_MEMBER}" if v.dialect == "bridge" else "attention_backend flash",
        facts=("batch_invariant", "attention_backend"),
        fixes=(
            Fix({"attention_backend": "flash"}, "flash attention"),
            Fix({"batch_invariant": False}, "results may depend on the batch"),
        ),
    )


RULES = (batch_invariant_mode_has_flash_attention,)
