"""verl's steps: how many sequences one holds, in which mini-batches and micro-batches the ranks train on them."""

from __future__ import annotations

from math import gcd

from megatron_hcp.rules.cp.view import micro_batches_that_divide, nearest_divisors
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    VERL_ACTOR_CONFIG,
    VERL_CONFIG,
    VERL_CRITIC_CONFIG,
    VERL_ENGINE_WORKERS,
    VERL_TENSORDICT_UTILS,
)
from megatron_hcp.rules.verl.view import ACTOR, BY_TOKENS, CRITIC, SOUND, is_unvalidated, validates
from megatron_hcp.rules.view import View


@rule(
    "VERL003",
    "error crash config",
    source=(VERL_CONFIG.says("validate_config", "must be divisible by minimal possible batch size", ">=0.7"),),
    applies=lambda v: validates(v, ACTOR) and v.get("micro_batch_size", 0) is not None,
    good=Example("verl", f"{SOUND} trainer.nnodes=2 {ACTOR}.megatron.context_parallel_size=4"),
    bad=Example("verl", f"{SOUND} trainer.nnodes=3 {ACTOR}.megatron.context_parallel_size=4"),
)
def sequences_of_a_step_divide_into_micro_batches(v: View) -> Problem | None:
    """The sequences of a step are divisible by DP size x micro-batch size.

    A step has train_batch_size x rollout.n sequences. Context parallelism changes the data-parallel size: DP is what
    remains of the GPUs after tp, pp and cp.
    """
    if v.use_dynamic_bsz or v.train_batch_size is None or v.rollouts is None:
        return None
    model = v.tp * v.pp * v.cp
    if v.world_size % model:
        return None  # TOPO003
    unit, sequences = v.world_size // model * v.micro_batch_size, v.train_batch_size * v.rollouts
    if sequences % unit == 0:
        return None
    prompts = unit // gcd(unit, v.rollouts)
    mini = -(-(v.get("global_batch_size") or prompts) // prompts) * prompts
    size = -(-v.train_batch_size // mini) * mini
    edits = {"train_batch_size": size} | (
        {} if v.get("global_batch_size") in (None, mini) else {"global_batch_size": mini}
    )
    dp = v.world_size // model
    fixes = [*(micro_batches_that_divide(sequences // dp, v.micro_batch_size) if sequences % dp == 0 else ())]
    fixes.append(Fix(edits, f"{size} prompts per step, in whole mini-batches of {mini}"))
    fixes += _fewer_nodes(v, model, sequences)
    return Problem(
        message="the sequences of a step cannot be split over the ranks in micro-batches: start-up fails",
        found=f"{sequences} sequences for DP {v.world_size // model} x micro-batch {v.micro_batch_size}",
        wanted=f"a multiple of {unit}",
        facts=("train_batch_size", "micro_batch_size", "cp", "world_size"),
        fixes=(*fixes, BY_TOKENS),
    )


@rule(
    "VERL004",
    "error crash config",
    source=(
        VERL_ACTOR_CONFIG.says("ActorConfig.validate", "train_batch_size ({train_batch_size}) must be >= ", ">=0.7"),
        VERL_CRITIC_CONFIG.says("CriticConfig.validate", "train_batch_size ({train_batch_size}) must be >= ", ">=0.7"),
    ),
    applies=lambda v: validates(v, ACTOR, CRITIC),
    good=Example("verl", f"{SOUND} data.train_batch_size=256"),
    bad=Example("verl", f"{SOUND} data.train_batch_size=128"),
)
def mini_batches_are_part_of_a_step(v: View) -> Problem | None:
    """A mini-batch has no more prompts than a step.

    ppo_mini_batch_size defaults to 256; actor and critic reject a train_batch_size below it.
    """
    step, mini = v.train_batch_size, v.global_batch_size
    if v.use_dynamic_bsz or step is None or mini is None or step >= mini:
        return None
    return Problem(
        message="a mini-batch is larger than the step that it is taken from: start-up fails",
        found=f"data.train_batch_size {step} with ppo_mini_batch_size {mini}",
        wanted=f"ppo_mini_batch_size of at most {step}",
        facts=("global_batch_size", "train_batch_size"),
        fixes=(Fix({"global_batch_size": step}, "one mini-batch per step"),),
    )


_FEWER_NODES = 4096
"""Tried at most: a launch may state any number of nodes."""


def _splits_steps(v: View) -> bool:
    """Whether verl's synchronous trainer splits a step of Megatron's actor into mini-batches."""
    is_one = v.dialect == "verl" and v.get("strategy") == "megatron" and v.launch.reading.role == ACTOR
    return is_one and not is_unvalidated(v)


def _fewer_nodes(v: View, model: int, sequences: int) -> list[Fix]:
    """The most nodes, of those fewer than now, over whose ranks the sequences of a step divide."""
    nodes, per_node, size = v.get("nodes"), v.get("gpus_per_node"), v.micro_batch_size
    if not isinstance(nodes, int) or not isinstance(per_node, int):
        return []
    for fewer in range(min(nodes - 1, _FEWER_NODES), 0, -1):
        ranks = fewer * per_node
        if ranks % model == 0 and sequences % (ranks // model * size) == 0:
            return [Fix({"nodes": fewer}, f"{ranks} ranks")]
    return []


@rule(
    "VERL008",
    "error crash training",
    source=(
        VERL_TENSORDICT_UTILS.says("make_iterator", "% mini_batch_size == 0", ">=0.7"),
        VERL_ENGINE_WORKERS.says("TrainingWorker.train_mini_batch", "// self.engine.get_data_parallel_size()", ">=0.7"),
    ),
    applies=_splits_steps,
    good=Example("verl", f"{SOUND} data.train_batch_size=128 {ACTOR}.ppo_mini_batch_size=64"),
    bad=Example("verl", f"{SOUND} data.train_batch_size=128 {ACTOR}.ppo_mini_batch_size=96"),
)
def steps_are_whole_mini_batches(v: View) -> Problem | None:
    """A step has a whole number of mini-batches on every rank.

    Each rank holds train_batch_size x rollout.n / DP sequences and trains on ppo_mini_batch_size x rollout.n / DP of
    them at a time. verl asserts that the second divides the first, once the first rollouts have been paid for.
    """
    step, mini, rollouts = v.train_batch_size, v.global_batch_size, v.rollouts
    model = v.tp * v.pp * v.cp
    if step is None or mini is None or rollouts is None or step < mini or v.world_size % model:
        return None  # VERL004 and TOPO003
    dp = v.world_size // model
    if step * rollouts % dp:
        return None  # the step itself does not divide: VERL003
    held, trained = step * rollouts // dp, mini * rollouts // dp
    if trained and held % trained == 0:
        return None
    whole = -(-step // mini) * mini
    near = nearest_divisors(step, mini, lambda size: size * rollouts % dp == 0)
    return Problem(
        message="verl's assertion fails at the first update, after the first rollouts",
        found=f"{held} sequences on each of {dp} data-parallel ranks, in mini-batches of {trained}",
        wanted=f"data.train_batch_size a multiple of ppo_mini_batch_size {mini}, and both of DP",
        facts=("global_batch_size", "train_batch_size", "rollouts", "world_size"),
        fixes=(
            *(
                Fix({"global_batch_size": size}, f"mini-batches of {size} prompts")
                for size in sorted(near, key=lambda size: abs(size - mini))
            ),
            Fix({"train_batch_size": whole}, f"{whole} prompts per step"),
        ),
    )
