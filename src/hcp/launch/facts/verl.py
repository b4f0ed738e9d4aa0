"""Fact names: batch settings that verl checks at start-up."""

from hcp.launch.facts.spec import FactSpec

_ROLLOUT, _REF = "actor_rollout_ref.rollout", "actor_rollout_ref.ref"


def _size(name: str, doc: str, key: str) -> FactSpec:
    return FactSpec(name, "size", f"verl: {doc}; null = not stated", verl=(key,), defaults={"verl": None})


VERL_FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        "train_batch_size", "size", "verl: prompts per step", verl=("data.train_batch_size",), defaults={"verl": 1024}
    ),
    FactSpec("rollouts", "size", "verl: answers per prompt", verl=(f"{_ROLLOUT}.n",), defaults={"verl": 1}),
    FactSpec(
        "vanilla_mbridge",
        "bool",
        "verl: the legacy mbridge builds the model; null = the release's default",
        verl=("@.megatron.vanilla_mbridge",),
        defaults={"verl": None},
    ),
    _size("ppo_micro_batch_size", "sequences per forward pass over all ranks (old)", "@.ppo_micro_batch_size"),
    _size(
        "rollout_log_prob_micro_batch_size_per_gpu",
        "sequences per forward pass for the old log-probabilities",
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    ),
    _size(
        "rollout_log_prob_micro_batch_size", "the same over all ranks (old)", f"{_ROLLOUT}.log_prob_micro_batch_size"
    ),
    _size(
        "log_prob_micro_batch_size_per_gpu",
        "sequences per forward pass of the reference model",
        f"{_REF}.log_prob_micro_batch_size_per_gpu",
    ),
    _size("log_prob_micro_batch_size", "the same over all ranks (old)", f"{_REF}.log_prob_micro_batch_size"),
)
