"""Multi-token prediction: what it can be combined with."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS
from megatron_hcp.rules.view import View

_MTP = "--mtp-num-layers 1"


def _predicts_more(v: View) -> bool:
    """Whether Megatron-LM's command line requests multi-token prediction. Requests no fact."""
    return v.dialect == "mlm" and bool(v.get("mtp_layers"))


@rule(
    "MTP001",
    severity="error",
    effect="crash",
    stage="config",
    source=(ARGUMENTS.says("validate_args", "position embedding type.", ">=0.12"),),
    applies=_predicts_more,
    good=Example("mlm", f"{_MTP} --position-embedding-type rope"),
    bad=Example("mlm", f"{_MTP} --position-embedding-type yarn"),
)
def mtp_has_rotary_positions(v: View) -> Problem | None:
    """Multi-token prediction uses rotary positions or none.

    Megatron-LM's command line rejects every other kind, including its default, learned_absolute. From 0.17 on it checks
    this before the older option --use-rotary-position-embeddings takes effect.
    """
    kind = v.position_embedding_type
    if kind in ("rope", None):  # "none" is read as null
        return None
    if v.use_rotary_position_embeddings and not v.at_least("mcore", "0.17"):
        return None
    return Problem(
        message="Megatron-LM's command line rejects multi-token prediction with these positions: the launch fails",
        found=f"{v.mtp_layers} prediction layers with position_embedding_type {kind}",
        wanted="rope or none",
        facts=("position_embedding_type", "mtp_layers"),
        fixes=(Fix({"position_embedding_type": "rope"}, "rotary positions"),),
    )


RULES = (mtp_has_rotary_positions,)
