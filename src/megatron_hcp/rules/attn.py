"""Attention settings that Megatron-LM's command line accepts, and batch-invariant attention."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENT_UTILS, ARGUMENTS, TRANSFORMER_CONFIG
from megatron_hcp.rules.view import View

_MEMBER = "_target_: megatron.core.transformer.enums.AttnBackend, _call_: true, _args_: [1]"


@rule(
    "ATTN001",
    "error crash config",
    source=(
        ARGUMENTS.says("validate_args", "--attention-backend local is only supported with --spec local", ">=0.12"),
    ),
    applies=lambda v: v.dialect == "mlm" and v.get("attention_backend") == "local",
    good=Example("mlm", "--attention-backend local --spec local"),
    bad=Example("mlm", "--attention-backend local"),
)
def local_backend_has_the_local_spec(v: View) -> Problem | None:
    """The local attention backend is used with the local layer spec.

    Megatron-LM's argument validation asserts this; without any --spec the assertion itself raises a TypeError.
    """
    spec = v.spec if isinstance(v.spec, list | tuple) else (v.spec,)
    if spec[:1] in (("local",), ["local"]):
        return None
    fixes = (Fix({"spec": "local"}, "the local layer spec"), Fix({"attention_backend": "auto"}, "any backend"))
    return Problem(
        message="Megatron-LM's command line accepts the local backend only with --spec local: the launch fails",
        found=f"attention_backend local with {'no spec' if spec[0] is None else f'spec {spec[0]}'}",
        wanted="--spec local, or another backend",
        facts=("attention_backend", "spec"),
        fixes=fixes if spec[0] is None else fixes[::-1],  # another spec is another model
    )


@rule(
    "ATTN002",
    "error crash config",
    source=(
        ARGUMENTS.says("core_transformer_config_from_args", 'only support rope_type="rope"', ">=0.14,<0.18"),
        ARGUMENT_UTILS.says("core_transformer_config_from_args", 'only support rope_type="rope"', ">=0.18"),
    ),
    applies=lambda v: v.dialect == "mlm" and v.get("rope_type") not in (None, "rope"),
    good=Example("mlm", "--rope-type yarn --multi-latent-attention"),
    bad=Example("mlm", "--rope-type yarn"),
)
def rope_type_is_for_latent_attention(v: View) -> Problem | None:
    """A rope_type other than rope is used only with multi-latent attention.

    The command line supports rope_type only for latent attention and has asserted this since 0.14; other attention uses
    --position-embedding-type yarn.
    """
    if v.mla or (v.known("mcore") and not v.at_least("mcore", "0.14")):
        return None
    return Problem(
        message="without multi-latent attention, Megatron-LM's command line accepts only rope_type rope: the launch "
        "fails",
        found=f"rope_type {v.rope_type}",
        wanted="rope, or multi_latent_attention",
        facts=("rope_type", "mla"),
        fixes=(Fix({"rope_type": "rope"}, "plain rotary positions"),),
    )


def _is_a_word(v: View) -> bool:
    """Whether a Bridge configuration gives the backend as a plain word: it stays a string, never an enum member."""
    fact = v.fact("attention_backend")
    assert fact is not None, "the rule has read it"
    if v.dialect != "bridge" or fact.origin != "launch":
        return False
    return all(setting.key != f"{fact.key}._target_" for setting in v.launch.reading.settings)


@rule(
    "ATTN003",
    "error crash config",
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
