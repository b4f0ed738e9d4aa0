"""Known bugs in how Megatron balances experts and reduces their gradients."""

from __future__ import annotations

from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import EXTENSION_TE, ROUTER, SCHEDULES

_EXPERTS = "--num-experts 8 --disable-bias-linear --expert-model-parallel-size 2"
_BALANCED = f"{_EXPERTS} --moe-aux-loss-coeff 0.01"
_BY_TOKENS = Known(
    "KNOWN041",
    "mcore",
    "<0.19",
    when="num_experts > 1 and cp > 1 and calculate_per_token_loss and moe_router_load_balancing_type != null "
    "and moe_aux_loss_coeff != 0",
    title="With per-token loss and CP, the expert-balancing loss keeps its weight",
    why="Per-token loss divides all gradients by the tokens of all ranks. The router makes up for it with the tokens "
    "of its own rank, a share of the sequence: 1 / (cp x tp) of what is wanted. It does the same with the z-loss.",
    symptom="the auxiliary loss is multiplied by the tokens of one rank instead of the whole sequence: experts are "
    "balanced cp x tp times less than moe_aux_loss_coeff says",
    issue="NVIDIA/Megatron-LM#5047",
    outcome="warning silent never",
    source=(
        ROUTER.says(
            "TopKRouter.attach_and_log_load_balancing_loss",
            absent="* self.tp_cp_group.size()",
            versions=">=0.14,<0.19",
        ),
    ),
    launch=Example("mlm", f"--context-parallel-size 2 {_BALANCED} --calculate-per-token-loss"),
    instead="a moe_aux_loss_coeff that is cp x tp times larger",
)

ROWS: tuple[Known, ...] = (
    Known(
        "KNOWN040",
        "mcore",
        "<0.16",
        when="num_experts > 1 and cp > 1 and not calculate_per_token_loss and moe_router_load_balancing_type != null "
        "and moe_aux_loss_coeff != 0",
        title="Under CP, the loss that balances experts keeps its weight",
        why="Gradients are averaged over the context-parallel ranks, each of which has a part of the auxiliary loss's. "
        "The main loss is multiplied by the CP size to make up for it; the auxiliary loss and the z-loss weren't.",
        symptom="the gradient of the auxiliary loss is divided by the CP size: experts are balanced cp times less than "
        "moe_aux_loss_coeff says",
        issue="NVIDIA/Megatron-LM#2237",
        outcome="warning silent never",
        source=(
            SCHEDULES.says(
                "forward_step_calc_loss",
                "MoEAuxLossAutoScaler.set_loss_scale(loss_scale / num_microbatches)",
                ">=0.14,<0.16",
            ),
        ),
        launch=Example("mlm", f"--context-parallel-size 2 {_BALANCED}"),
        instead="a moe_aux_loss_coeff that is cp times larger",
    ),
    _BY_TOKENS,
    _BY_TOKENS._replace(
        id="KNOWN042",
        when=_BY_TOKENS.when.replace("cp > 1", "cp = 1 and tp > 1"),
        title="With per-token loss and TP, the expert-balancing loss keeps its weight",
        launch=Example(
            "mlm",
            "--tensor-model-parallel-size 2 --num-attention-heads 8 --sequence-parallel "
            f"{_BALANCED} --calculate-per-token-loss",
        ),
    ),
    Known(
        "KNOWN043",
        "mcore",
        "<0.19",
        when="num_experts > 1 and ep = 1 and etp > tp",
        title="Experts split over more ranks than other weights get their own gradients",
        why="Without expert parallelism the experts' weights are marked for the data-parallel ranks of the dense "
        "layers. These include ranks that hold other parts of an expert.",
        symptom="gradients of different parts of an expert are averaged with each other: the experts silently train "
        "on garbage",
        issue="NVIDIA/Megatron-LM#1628",
        outcome="error silent never",
        source=(
            EXTENSION_TE.says(
                "TELinear.__init__", 'setattr(param, "allreduce", not self.expert_parallel)', ">=0.13,<0.19"
            ),
        ),
        launch=Example(
            "mlm",
            "--num-experts 8 --disable-bias-linear --expert-model-parallel-size 1 --expert-tensor-parallel-size 2",
        ),
        instead="expert_tensor_parallel_size = tensor_model_parallel_size, or expert parallelism",
        fixes=(Fix({"etp": None}, "experts split like the dense layers"),),
    ),
)

register_rows(ROWS, __name__)
