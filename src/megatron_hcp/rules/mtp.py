"""Multi-token prediction: what it can be combined with, and which tokens its loss counts."""

from __future__ import annotations

from megatron_hcp.rules.loss import is_finetuning
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, BRIDGE_GPT_STEP, MULTI_TOKEN_PREDICTION
from megatron_hcp.rules.view import View

_MTP = "--mtp-num-layers 1"
_SFT = (
    "model.calculate_per_token_loss=true dataset.packed_sequence_specs.packed_sequence_size=4096 "
    "train.micro_batch_size=1 model.mtp_num_layers="
)


def _predicts_more(v: View) -> bool:
    """Whether Megatron-LM's command line requests multi-token prediction. Requests no fact."""
    return v.dialect == "mlm" and bool(v.get("mtp_layers"))


@rule(
    "MTP001",
    "error crash config",
    source=(ARGUMENTS.says("validate_args", "position embedding type.", ">=0.12"),),
    applies=_predicts_more,
    good=Example("mlm", f"{_MTP} --position-embedding-type rope"),
    bad=Example("mlm", f"{_MTP} --position-embedding-type learned_absolute"),
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


def _predicts_more_in_gpt_step(v: View) -> bool:
    """Whether Bridge's gpt_step fine-tunes with multi-token prediction.

    Models with a vision tower have steps of their own, which pass the mask.
    """
    name = str(v.get("model_name"))
    sees = bool(v.get("vision")) or any(word in name for word in ("VL", "Omni"))
    return v.dialect == "bridge" and bool(v.get("mtp_layers")) and not sees and is_finetuning(v)


@rule(
    "MTP002",
    "warning silent never",
    source=(
        BRIDGE_GPT_STEP.says("_forward_step_common", absent='"loss_mask": loss_mask', versions=">=0.2"),
        MULTI_TOKEN_PREDICTION.says("process_mtp_loss", "loss_mask = torch.ones_like(mtp_labels)", ">=0.17"),
    ),
    applies=_predicts_more_in_gpt_step,
    good=Example("bridge", f"{_SFT}null"),
    bad=Example("bridge", f"{_SFT}1"),
)
def mtp_leaves_out_what_the_loss_leaves_out(v: View) -> Problem | None:
    """Fine-tuning counts the same tokens in multi-token prediction as its loss.

    Bridge's gpt_step masks the loss itself but passes no mask to the model, which then predicts padding and prompts too
    (NVIDIA-NeMo/Megatron-Bridge#6103). The gradient of that loss, scaled by mtp_loss_scaling_factor, reaches the whole
    model. Only the step that overlaps expert communication passes the mask. No release has a fix.
    """
    if v.overlap_moe_expert_parallel_comm:
        return None
    return Problem(
        message="multi-token prediction trains on padding and prompts, which the loss leaves out",
        found=f"fine-tuning with {v.mtp_layers} prediction layers in Bridge's gpt_step, which passes no loss_mask",
        wanted="gpt_step with loss_mask among its forward_args (NVIDIA-NeMo/Megatron-Bridge#6105), or no multi-token "
        "prediction",
        facts=("mtp_layers", "overlap_moe_expert_parallel_comm"),
        fixes=(Fix({"mtp_layers": None}, "no multi-token prediction"),),
    )
