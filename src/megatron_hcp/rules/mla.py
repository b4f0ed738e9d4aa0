"""Multi-latent attention: what it can't be combined with."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, CORE_DOT_PRODUCT_ATTENTION, MULTI_LATENT_ATTENTION
from megatron_hcp.rules.view import View

_GQA = "--group-query-attention --num-query-groups 4"


@rule(
    "MLA001",
    "error crash config",
    source=(ARGUMENTS.says("validate_args", "mutually exclusive with multi latent attention.", ">=0.16"),),
    applies=lambda v: v.dialect == "mlm" and bool(v.get("mla")),
    good=Example("mlm", "--multi-latent-attention"),
    bad=Example("mlm", f"--multi-latent-attention {_GQA}"),
)
def mla_excludes_gqa(v: View) -> Problem | None:
    """Multi-latent attention is used without query groups.

    It derives the keys and values of every head from one latent vector, so there are none to share. Megatron-LM's
    command line has asserted this since 0.16.
    """
    if not v.group_query_attention or (v.known("mcore") and not v.at_least("mcore", "0.16")):
        return None  # before 0.16 the groups were read but never used
    return Problem(
        message="Megatron-LM's command line rejects query groups with multi-latent attention: the launch fails",
        found="multi_latent_attention with group_query_attention",
        wanted="multi_latent_attention without group_query_attention, or the reverse",
        facts=("group_query_attention", "mla"),
        fixes=(Fix({"group_query_attention": False}, "multi-latent attention only"),),
    )


@rule(
    "MLA002",
    "error crash init",
    source=(
        MULTI_LATENT_ATTENTION.says("MultiLatentAttention.__init__", "k_channels=self.q_head_dim", ">=0.12"),
        CORE_DOT_PRODUCT_ATTENTION.says("DotProductAttention.__init__", versions=">=0.12", absent="k_channels"),
    ),
    applies=lambda v: v.dialect == "mlm" and bool(v.get("mla")),
    good=Example("mlm", "--multi-latent-attention --transformer-impl transformer_engine"),
    bad=Example("mlm", "--multi-latent-attention --transformer-impl local"),
)
def mla_has_an_attention_that_takes_its_channels(v: View) -> Problem | None:
    """Multi-latent attention runs on Transformer Engine's attention.

    It gives its attention the channels of keys and of values apart. megatron-core's own attention, which
    --transformer-impl local selects, has no such arguments: the model can't be made.
    """
    if v.transformer_impl != "local":
        return None
    return Problem(
        message="the model can't be made: TypeError, DotProductAttention gets an unexpected argument k_channels",
        found="multi_latent_attention with transformer_impl local",
        wanted="transformer_impl transformer_engine",
        facts=("transformer_impl", "mla"),
        fixes=(Fix({"transformer_impl": "transformer_engine"}, "Transformer Engine's attention"),),
    )
