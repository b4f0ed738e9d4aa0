"""Valid launches with dynamic CP, the basis of its rules' examples."""

from __future__ import annotations

_SOUND = {
    "max_seqlen_per_dp_cp_rank": 4096,
    "context_parallel_size": 8,
    "seq_length": 32768,
    "sft": True,
    "no_create_attention_mask_in_dataloader": True,
    "calculate_per_token_loss": True,
    "micro_batch_size": 1,
    "eval_iters": 0,
}


def hybrid(**changes: object) -> str:
    """Megatron-LM's command line with hybrid CP and changed options: True is a bare flag, None omits the option.

    >>> hybrid(eval_iters=10).split()[-2:]
    ['--eval-iters', '10']
    """
    options = {"hybrid_context_parallel": True, **_SOUND, **changes}
    flags = {name: "--" + name.replace("_", "-") for name, value in options.items() if value is not None}
    return " ".join(flag if options[name] is True else f"{flag} {options[name]}" for name, flag in flags.items())


HYBRID = hybrid()
DYNAMIC = HYBRID.replace("--hybrid-", "--dynamic-")
"""The name of megatron-core's dev branch."""

ACTOR = "actor_rollout_ref.actor.megatron."
VERL = (
    f"{ACTOR}dynamic_context_parallel=True {ACTOR}max_seqlen_per_dp_cp_rank=4096 "
    "actor_rollout_ref.actor.use_dynamic_bsz=True"
)

ON_MAIN = "world_size=8 mcore=0.17.0 te=2.14"
ON_DEV = "world_size=8 mcore=0.19.0 mcore_branch=dev te=2.14"
VERL_0_9 = "verl=0.9.1 mcore=0.19.0 mcore_branch=dev"
VERL_0_8 = "verl=0.8.0 mcore=0.19.0 mcore_branch=dev"
"""What is assumed for them: the versions in which dynamic CP works best."""
