"""Dynamic context parallelism: what a token weighs in the gradient."""

from __future__ import annotations

from hcp.rules.dcp_view import is_dynamic, num_ranks
from hcp.rules.rule import Example, Fix, Problem, View, rule
from hcp.rules.upstream import SCHEDULES, VERL_ENGINE


def _by_sequence(v: View) -> Problem | None:
    if v.calculate_per_token_loss:
        return None
    return Problem(
        message="each sequence is divided by the tokens that its rank holds: short answers weigh more than long ones",
        found="dynamic CP without calculate_per_token_loss",
        wanted="calculate_per_token_loss, and a loss function that returns its tokens",
        facts=("calculate_per_token_loss",),
        fixes=(
            Fix({"calculate_per_token_loss": True, "average_in_collective": False}, "sums over tokens, divided once"),
        ),
    )


_ACTOR = "actor_rollout_ref.actor.megatron."
_VERL = f"{_ACTOR}dynamic_context_parallel=True {_ACTOR}max_seqlen_per_dp_cp_rank=4096"


@rule(
    "LOSS006",
    severity="error",
    effect="silent",
    stage="never",
    source=(
        VERL_ENGINE.says("MegatronEngine.get_data_parallel_size", "we set dp=1", ">=0.8,<0.9"),
        SCHEDULES.says("forward_step_calc_loss", "if not config.calculate_per_token_loss:", ">=0.15"),
    ),
    applies=lambda v: v.kind in ("verl", "bridge-provider") and is_dynamic(v),
    good=Example("verl", _VERL, "verl=0.9.1 mcore=0.19.0 mcore_branch=dev"),
    bad=Example(
        "verl",
        f"{_VERL} actor_rollout_ref.actor.use_dynamic_bsz=False actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "verl=0.8.0 mcore=0.19.0 mcore_branch=dev",
    ),
)
def tokens_weigh_the_same_under_dynamic_cp(v: View) -> Problem | None:
    """Under dynamic CP every token weighs the same in the gradient.

    With a mean over W ranks and outputs gathered without gradient, the loss over the step's tokens T must be
    multiplied by W. verl 0.8 divides by W x T and multiplies by 1: 1/W^2. Pull request #5869 multiplies by W/C:
    1/C, a wrong direction where C differs. verl 0.9 and per-token loss in megatron-core are exact; outside
    Megatron-LM's command line nothing asks for the latter.
    """
    if v.kind != "verl":
        return _by_sequence(v)
    if v.at_least("verl", "0.9") or not v.at_least("verl", "0.8"):
        return None
    ranks = num_ranks(v)
    if ranks == 1:
        return None
    return Problem(
        message=f"gradients are 1/{ranks * ranks} of what they should be: clipping never acts, and weight decay wins",
        found=f"verl {v.verl}, which adds up the same {ranks} token counts and multiplies by nothing",
        wanted=f"verl 0.9 or newer, or a loss multiplied by {ranks * ranks}",
        facts=("dynamic_context_parallel", "verl", "world_size"),
        fixes=(Fix({"dynamic_context_parallel": False}, "static context parallelism"),),
    )


RULES = (tokens_weigh_the_same_under_dynamic_cp,)
