"""Fact names: the loss, and what it is divided by."""

from megatron_hcp.launch.facts.spec import UNKNOWN, FactSpec, field_spec

LOSS_FACTS: tuple[FactSpec, ...] = (
    field_spec(
        "calculate_per_token_loss",
        "bool",
        "calculate_per_token_loss",
        False,
        "gradients are divided by the tokens of the whole step",
    ),
    FactSpec(
        "cross_entropy_fusion",
        "bool",
        "Megatron-LM: the cross-entropy loss is one fused kernel",
        mlm=("cross_entropy_loss_fusion",),
        default=UNKNOWN,
        defaults={"mlm": False},
    ),
    FactSpec(
        "cross_entropy_fusion_impl",
        "str",
        "Megatron-LM: whose fused loss, native or te",
        mlm=("cross_entropy_fusion_impl",),
        default=UNKNOWN,
        defaults={"mlm": "native"},
    ),
    FactSpec("finetune", "bool", "Bridge: a fine-tuning dataset (derived)"),
    FactSpec(
        "distillation",
        "bool",
        "verl: distillation from a teacher",
        verl=("distillation.enabled",),
        defaults={"verl": False},
    ),
    FactSpec(
        "distillation_loss",
        "str",
        "verl: the distillation loss; forward_kl_topk carries teacher logits",
        verl=("distillation.distillation_loss.loss_mode",),
        defaults={"verl": "k3"},
    ),
    FactSpec(
        "fused_linear_logprobs",
        "bool",
        "the loss is fused with the output layer",
        verl=("@model.use_fused_kernels",),
        default=UNKNOWN,
        defaults={"verl": False},
    ),
)
