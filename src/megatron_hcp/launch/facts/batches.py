"""Fact names: batch sizes."""

from megatron_hcp.launch.facts.spec import UNKNOWN, FactSpec

BATCH_FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        "micro_batch_size",
        "size",
        "sequences per forward pass",
        mlm=("micro_batch_size",),
        bridge=("train.micro_batch_size",),
        verl=("@.ppo_micro_batch_size_per_gpu",),
        defaults={"verl": None},
    ),
    FactSpec(
        "global_batch_size",
        "size",
        "sequences per step; null = one micro-batch on each data-parallel rank",
        mlm=("global_batch_size",),
        bridge=("train.global_batch_size",),
        verl=("@.ppo_mini_batch_size",),
        defaults={"mlm": None, "verl": 256},
    ),
    FactSpec(
        "eval_micro_batch_size",
        "size",
        "sequences per forward pass in evaluation; null = as in training (mcore >= 0.18, Bridge >= 0.5)",
        mlm=("eval_micro_batch_size",),
        bridge=("validation.eval_micro_batch_size",),
        default=UNKNOWN,
        defaults={"mlm": None, "bridge": None},
    ),
    FactSpec(
        "eval_global_batch_size",
        "size",
        "sequences per evaluation step; null = as in training (mcore >= 0.18, Bridge >= 0.5)",
        mlm=("eval_global_batch_size",),
        bridge=("validation.eval_global_batch_size",),
        default=UNKNOWN,
        defaults={"mlm": None, "bridge": None},
    ),
    FactSpec(
        "rampup_batch_size",
        "any",
        "first global batch size, increment, samples until the final size; null = constant (Megatron-LM before 0.18)",
        mlm=("rampup_batch_size",),
        bridge=("train.rampup_batch_size",),
        default=UNKNOWN,
        defaults={"mlm": None, "bridge": None},
    ),
    FactSpec(
        "step_batch_size_schedule",
        "str",
        "Megatron-LM >= 0.18: global batch sizes by threshold; null = constant",
        mlm=("step_batch_size_schedule",),
        default=UNKNOWN,
        defaults={"mlm": None},
    ),
    FactSpec(
        "decrease_batch_size",
        "bool",
        "a global batch size that isn't divisible is rounded down",
        mlm=("decrease_batch_size_if_needed",),
        bridge=("train.decrease_batch_size_if_needed",),
        default=UNKNOWN,
        defaults={"mlm": False, "bridge": False},
    ),
)
