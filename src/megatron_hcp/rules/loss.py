"""How the loss is averaged when a sequence is split over ranks."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import under_cp
from megatron_hcp.rules.dcp.launches import VERL, VERL_0_8, VERL_0_9
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, BRIDGE_CONFIG, DDP, SCHEDULES, VERL_ENGINE
from megatron_hcp.rules.view import View

_PER_TOKEN_IN_VERL = (
    "actor_rollout_ref.actor.megatron.override_transformer_config.calculate_per_token_loss=True "
    "actor_rollout_ref.actor.use_dynamic_bsz=True"
)


def is_finetuning(v: View) -> bool:
    """Whether the loss covers answers only, not all tokens. A Bridge launch that packs rows offline fine-tunes."""
    if v.dialect == "mlm":
        return bool(v.sft)
    return v.get("packing") == "offline" or bool(v.finetune)


def _averages_by_sequence(v: View) -> Problem | None:
    """The problem of a launcher (other than verl) that averages the loss per sequence."""
    if v.calculate_per_token_loss:
        return None
    return Problem(
        message="each sequence's loss is divided by the tokens on its rank: short answers weigh more than long ones",
        found="dynamic CP without calculate_per_token_loss",
        wanted="calculate_per_token_loss, and a loss function that returns its token count",
        facts=("calculate_per_token_loss",),
        fixes=(
            Fix({"calculate_per_token_loss": True, "average_in_collective": False}, "sums over tokens, divided once"),
        ),
    )


def _is_dynamic(v: View) -> bool:
    from megatron_hcp.rules.dcp.view import is_dynamic

    return is_dynamic(v)


@rule(
    "LOSS006",
    "error silent never",
    source=(
        VERL_ENGINE.says("MegatronEngine.get_data_parallel_size", "we set dp=1", ">=0.8"),
        SCHEDULES.says("forward_step_calc_loss", "if not config.calculate_per_token_loss:", ">=0.14"),
    ),
    applies=lambda v: v.dialect in ("verl", "bridge-provider") and _is_dynamic(v),
    good=Example("verl", VERL, VERL_0_9),
    bad=Example(
        "verl",
        f"{VERL} actor_rollout_ref.actor.use_dynamic_bsz=False actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 "
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
        VERL_0_8,
    ),
)
def tokens_weigh_the_same_under_dynamic_cp(v: View) -> Problem | None:
    """Under dynamic CP, every token has the same weight in the gradient.

    With a mean over W ranks and outputs gathered without gradient, the loss over the step's T tokens must be multiplied
    by W. verl 0.8 divides by W x T and multiplies by 1: a factor of 1/W^2. Pull request #5869 multiplies by W/C: a
    factor of 1/C, and a wrong direction if C varies. verl 0.9 and per-token loss in megatron-core are exact; apart from
    Megatron-LM's command line, nothing enforces the latter.
    """
    if v.dialect != "verl":
        return _averages_by_sequence(v)
    if v.at_least("verl", "0.9") or not v.at_least("verl", "0.8"):
        return None
    from megatron_hcp.rules.dcp.view import num_ranks

    ranks = num_ranks(v)
    if ranks == 1:
        return None
    return Problem(
        message=f"gradients are 1/{ranks * ranks} of what they should be: clipping never triggers, and weight decay "
        f"dominates",
        found=f"verl {v.verl}, which sums the same token count over {ranks} ranks and doesn't scale the loss back",
        wanted=f"verl 0.9 or newer, or a loss multiplied by {ranks * ranks}",
        facts=("dynamic_context_parallel", "verl", "world_size"),
        fixes=(Fix({"dynamic_context_parallel": False}, "static context parallelism"),),
    )


def _averaging_is_cleared(v: View) -> bool:
    """Whether Bridge switches the average off before it checks: Megatron-FSDP generation 1 doesn't support it."""
    return bool(v.get("fsdp")) and v.get("fsdp_version") in (None, 1) and not v.symmetric_registration_off


@rule(
    "LOSS001",
    "error crash config",
    source=(
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate", "When finetuning with CP>1, calculate_per_token_loss must be True", ">=0.2"
        ),
        SCHEDULES.says("forward_step_calc_loss", "if not config.calculate_per_token_loss:", ">=0.14"),
    ),
    applies=under_cp(lambda v: v.dialect in ("mlm", "bridge") and is_finetuning(v)),
    good=Example(
        "mlm",
        "--context-parallel-size 2 --sft --calculate-per-token-loss --no-create-attention-mask-in-dataloader",
        "te=2.18",
    ),
    bad=Example("mlm", "--context-parallel-size 2 --sft --no-create-attention-mask-in-dataloader", "te=2.18"),
)
def fine_tuning_divides_by_all_tokens(v: View) -> Problem | None:
    """Fine-tuning under CP divides by the tokens of the whole step.

    Without calculate_per_token_loss each CP rank divides by its own number of answer tokens. In fine-tuning that number
    differs from rank to rank and may be zero, which gave NaN before 0.15 (with multi-token prediction before 0.17).
    Bridge's validation rejects it; Megatron-LM's --sft trains anyway. One of upstream's own test launches does so, so
    there it is a warning.
    """
    mlm = v.dialect == "mlm"
    silent = "ranks with few answer tokens weigh as much as the others: gradients are silently biased"
    mended = "0.17" if v.get("mtp_layers") else "0.15"
    if not v.known("mcore"):
        silent += f" (before megatron-core {mended}: NaN where a rank has none)"
    elif not v.at_least("mcore", mended):
        silent += ", and NaN where a rank has none (0/0)"
    stops = "Bridge's validation fails; without it, " + silent
    if not v.calculate_per_token_loss:
        return Problem(
            message=silent if mlm else stops,
            found=f"fine-tuning at context_parallel_size {v.cp} without calculate_per_token_loss",
            wanted="calculate_per_token_loss",
            facts=("calculate_per_token_loss", "cp"),
            fixes=(
                Fix(
                    {"calculate_per_token_loss": True, "average_in_collective": False},
                    "gradients are divided by the tokens of the whole step",
                ),
            ),
            severity="warning" if mlm else None,
            effect="silent" if mlm else None,
            stage="never" if mlm else None,
        )
    if mlm or not v.average_in_collective or _averaging_is_cleared(v):
        return None
    return Problem(
        message="Bridge's validation fails: averaging in the collective divides a second time",
        found=f"fine-tuning at context_parallel_size {v.cp} with ddp.average_in_collective",
        wanted="ddp.average_in_collective false",
        facts=("average_in_collective", "cp"),
        fixes=(Fix({"average_in_collective": False}, "a sum over ranks, divided once"),),
    )


@rule(
    "LOSS002",
    "error silent never",
    source=(
        VERL_ENGINE.says(
            "MegatronEngineWithLMHead.postprocess_micro_batch_func",
            "calculate_per_token_loss and loss_function is not None",
            ">=0.9",
        ),
    ),
    applies=lambda v: v.dialect == "verl" and bool(v.get("calculate_per_token_loss")),
    good=Example("verl", _PER_TOKEN_IN_VERL, "verl=0.9.0"),
    bad=Example("verl", _PER_TOKEN_IN_VERL, "verl=0.8.0"),
)
def loss_function_reports_its_tokens(v: View) -> Problem | None:
    """With per-token loss, the loss function reports its token count.

    With calculate_per_token_loss, megatron-core divides gradients by the token count that the loss function returns.
    verl before 0.9 returns a pair without it: nothing is divided, and the router's auxiliary loss, scaled up
    beforehand, stays large.
    """
    if v.at_least("verl", "0.9"):
        return None
    return Problem(
        message="this verl's loss function reports no token count: gradients aren't divided by it, and the experts' "
        "auxiliary losses explode",
        found=f"calculate_per_token_loss with verl {v.verl}",
        wanted="verl 0.9 or newer, or calculate_per_token_loss off",
        facts=("calculate_per_token_loss", "verl"),
        fixes=(Fix({"calculate_per_token_loss": False}, "verl's own averaging"),),
    )


@rule(
    "LOSS005",
    "error crash config",
    source=(
        DDP.says(
            "DistributedDataParallel.__init__",
            "GTP requires average_in_collective=False",
            ">=0.19",
            where="checkout",
            branches=("main",),
        ),
    ),
    applies=lambda v: max(v.get("gtp") or 1, v.get("egtp") or 1) > 1,
    good=Example("mlm", "--tensor-parallel-num-weight-shards 2"),
    bad=Example("mlm", "--tensor-parallel-num-weight-shards 2 --ddp-average-in-collective"),
)
def weight_shards_sum_in_the_collective(v: View) -> Problem | None:
    """Weight shards beyond TP are summed, not averaged, in the collective.

    Gradients of sharded weights are reduced over different ranks; averaging in the collective divides by the wrong
    count.
    """
    if not v.average_in_collective:
        return None
    dense = (v.get("gtp") or 1) > 1
    name, axis = ("weight_shards", "tp") if dense else ("expert_weight_shards", "etp")
    return Problem(
        message="weight shards would be averaged over different ranks than other weights: building the model fails",
        found=f"average_in_collective with {v[name]} weight shards{'' if dense else ' of experts'} at "
        f"{'tensor_model' if dense else 'expert_tensor'}_parallel_size {v[axis]}",
        wanted="average_in_collective off",
        facts=("average_in_collective", name, axis),
        fixes=(Fix({"average_in_collective": False}, "a sum in the collective"),),
    )


@rule(
    "LOSS007",
    "error crash config",
    source=(
        ARGUMENTS.says(
            "validate_args",
            "Transformer Engine cross entropy loss fusion is disabled due to stability issues.",
            ">=0.18.2",
        ),
    ),
    applies=lambda v: (
        v.dialect == "mlm" and bool(v.get("cross_entropy_fusion")) and v.get("cross_entropy_fusion_impl") == "te"
    ),
    good=Example("mlm", "--cross-entropy-loss-fusion --cross-entropy-fusion-impl native"),
    bad=Example("mlm", "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "mcore=0.18.2"),
)
def fused_loss_is_megatrons_own(v: View) -> Problem | None:
    """On Megatron-LM's command line the fused loss is megatron-core's own.

    Since 0.18.2 its argument validation rejects Transformer Engine's, because of stability issues (#5115). 0.18.0 and
    0.18.1 accept it. Other launchers only get megatron-core's warning.
    """
    if not v.at_least("mcore", "0.18.2"):
        return None
    return Problem(
        message="Megatron-LM's command line rejects Transformer Engine's fused cross-entropy loss: the launch fails",
        found=f"cross_entropy_loss_fusion with cross_entropy_fusion_impl te, megatron-core {v.mcore}",
        wanted="cross_entropy_fusion_impl native, or no cross_entropy_loss_fusion",
        facts=("cross_entropy_fusion_impl", "cross_entropy_fusion", "mcore"),
        fixes=(
            Fix({"cross_entropy_fusion_impl": "native"}, "megatron-core's fused loss"),
            Fix({"cross_entropy_fusion": False}, "no fused loss"),
        ),
    )
