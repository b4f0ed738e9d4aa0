"""Attention whose results do not depend on the batch."""

from __future__ import annotations

from hcp.rules.rule import Example, Fix, Problem, rule
from hcp.rules.upstream import TRANSFORMER_CONFIG
from hcp.rules.view import View


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
    that Transformer Engine chooses (auto) will not do.
    """
    if v.attention_backend == "flash" or not v.at_least("mcore", "0.16"):
        return None
    return Problem(
        message="batch-invariant mode takes flash attention alone: the model config is refused",
        found=f"batch_invariant_mode with attention_backend {v.attention_backend}",
        wanted="attention_backend flash",
        facts=("batch_invariant", "attention_backend"),
        fixes=(
            Fix({"attention_backend": "flash"}, "flash attention"),
            Fix({"batch_invariant": False}, "results may depend on the batch"),
        ),
    )


RULES = (batch_invariant_mode_has_flash_attention,)
