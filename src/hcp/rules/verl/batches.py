"""verl's batches: the sizes that `validate_config` and the classes of actor and critic want, and the token budget."""

from __future__ import annotations

from hcp.rules.dcp.view import max_sequence
from hcp.rules.rule import Example, Fix, Problem, rule
from hcp.rules.upstream import VERL_ACTOR_CONFIG, VERL_BALANCING, VERL_CONFIG, VERL_CRITIC_CONFIG, VERL_ENGINE_UTILS
from hcp.rules.view import View

_ACTOR, _REF, _CRITIC = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic"
_BY_TOKENS = Fix({"use_dynamic_bsz": True}, "micro-batches by tokens: ppo_max_token_len_per_gpu")

_SOUND = (
    f"{_ACTOR}.strategy=megatron {_ACTOR}.ppo_micro_batch_size_per_gpu=2 "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2 critic.enable=False"
)
_ROLLOUT = (
    f"{_ACTOR}.strategy=megatron {_ACTOR}.use_dynamic_bsz=True {_ACTOR}.ppo_max_token_len_per_gpu=16384 "
    "data.max_prompt_length=1024 data.max_response_length=31744"
)


def _counts_sequences(v: View, *roles: str) -> bool:
    """Whether a model of one of the roles, trained by megatron, forms micro-batches by a number of sequences."""
    is_one = v.dialect == "verl" and v.get("strategy") == "megatron" and v.launch.reading.role in roles
    return is_one and v.get("use_dynamic_bsz") is not True


def _needs_one(v: View, section: str, per_gpu: str, over_all: str, keys: tuple[str, str]) -> Problem | None:
    """The problem of two keys of which exactly one, or here the one per GPU, has to be set; None where it is."""
    if v.use_dynamic_bsz or (v[per_gpu] is not None and v[over_all] is None):
        return None
    if v[per_gpu] is not None:
        found, fix = f"both {keys[0]} and {keys[1]}", Fix({over_all: None}, "the size per GPU")
    else:
        found = f"use_dynamic_bsz False and no {keys[0]}" + ("" if v[over_all] is None else f", only {keys[1]}")
        fix = Fix({per_gpu: 1, over_all: None} if v[over_all] is not None else {per_gpu: 1}, "one sequence a forward")
    return Problem(
        message="verl does not know how to form micro-batches: start-up stops",
        found=f"{section}: {found}",
        wanted=f"{keys[0]}, or use_dynamic_bsz=True" + (" of the actor" if section == _REF else ""),
        facts=(per_gpu, over_all, "use_dynamic_bsz"),
        fixes=(fix,) if section == _REF else (fix, _BY_TOKENS),  # ref has no such key
        # verl's own YAMLs leave the sizes to the command line.
        severity="warning" if v.launch.reading.form == "yaml" and v[per_gpu] is None and v[over_all] is None else None,
    )


@rule(
    "VERL001",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        VERL_ACTOR_CONFIG.says("ActorConfig.__post_init__", "[actor] Please set at least one of", ">=0.7"),
        VERL_CRITIC_CONFIG.says("CriticConfig.__post_init__", "self._check_mutually_exclusive", ">=0.7"),
        VERL_CONFIG.says("validate_config", "config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", ">=0.7"),
    ),
    applies=lambda v: _counts_sequences(v, _ACTOR, _CRITIC),
    good=Example("verl", _SOUND),
    bad=Example("verl", _SOUND.replace(f"{_ACTOR}.ppo_micro_batch_size_per_gpu=2 ", "")),
)
def trained_models_have_a_micro_batch_size(v: View) -> Problem | None:
    """A model that verl trains has a micro-batch size, or forms micro-batches by tokens.

    Both sizes are null by default and use_dynamic_bsz is False: verl refuses that before it starts a worker, under
    dynamic context parallelism too. For an actor that megatron trains the older size over all ranks is not enough:
    the size per GPU is multiplied first.
    """
    role = v.launch.reading.role
    if role == _CRITIC and v.micro_batch_size is None and v.ppo_micro_batch_size is not None:
        return None
    keys = ("ppo_micro_batch_size_per_gpu", "ppo_micro_batch_size")
    return _needs_one(v, role, "micro_batch_size", "ppo_micro_batch_size", keys)


@rule(
    "VERL002",
    severity="error",
    effect="crash",
    stage="config",
    source=(VERL_CONFIG.says("validate_config", "log_prob_micro_batch_size", ">=0.7"),),
    applies=lambda v: _counts_sequences(v, _ACTOR, _REF),
    good=Example("verl", _SOUND),
    bad=Example(
        "verl", _SOUND.replace("actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2", "data.shuffle=True")
    ),
)
def log_probabilities_have_a_micro_batch_size(v: View) -> Problem | None:
    """Log-probabilities of rollout and reference model have a micro-batch size.

    Where the actor forms micro-batches by sequences, validate_config asks for the sizes of these forwards as well.
    """
    is_ref = v.launch.reading.role == _REF
    of = "" if is_ref else "rollout_"
    per_gpu, over_all = f"{of}log_prob_micro_batch_size_per_gpu", f"{of}log_prob_micro_batch_size"
    if not v.use_dynamic_bsz and v[per_gpu] is None and v[over_all] is not None:
        return None
    section = _REF if is_ref else "actor_rollout_ref.rollout"
    keys = ("log_prob_micro_batch_size_per_gpu", "log_prob_micro_batch_size")
    return _needs_one(v, section, per_gpu, over_all, keys)


@rule(
    "VERL003",
    severity="error",
    effect="crash",
    stage="config",
    source=(VERL_CONFIG.says("validate_config", "must be divisible by minimal possible batch size", ">=0.7"),),
    applies=lambda v: _counts_sequences(v, _ACTOR) and v.get("micro_batch_size", 0) is not None,
    good=Example("verl", f"{_SOUND} trainer.nnodes=2 {_ACTOR}.megatron.context_parallel_size=4"),
    bad=Example("verl", f"{_SOUND} trainer.nnodes=3 {_ACTOR}.megatron.context_parallel_size=4"),
)
def sequences_of_a_step_divide_into_micro_batches(v: View) -> Problem | None:
    """The sequences of a step divide by data-parallel size x micro-batch size.

    The sequences are train_batch_size x rollout.n. Context parallelism changes the data-parallel size: DP is what is
    left of the GPUs after tp, pp and cp.
    """
    if v.use_dynamic_bsz or v.train_batch_size is None or v.rollouts is None:
        return None
    model = v.tp * v.pp * v.cp
    if v.world_size % model:
        return None  # TOPO003
    unit, sequences = v.world_size // model * v.micro_batch_size, v.train_batch_size * v.rollouts
    if sequences % unit == 0:
        return None
    prompts = -(-sequences // unit) * unit
    fixes = []
    if prompts % v.rollouts == 0:
        size = prompts // v.rollouts
        fixes.append(Fix({"train_batch_size": size}, f"{size} prompts a step"))
    if v.micro_batch_size > 1:
        fixes.append(Fix({"micro_batch_size": 1}, "one sequence a forward"))
    return Problem(
        message="the sequences of a step cannot be dealt to the ranks in micro-batches: start-up stops",
        found=f"{sequences} sequences at DP {v.world_size // model} x micro-batch {v.micro_batch_size}",
        wanted=f"a multiple of {unit}",
        facts=("train_batch_size", "micro_batch_size", "cp", "world_size"),
        fixes=(*fixes, _BY_TOKENS),
    )


@rule(
    "VERL004",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        VERL_ACTOR_CONFIG.says("ActorConfig.validate", "train_batch_size < self.ppo_mini_batch_size", ">=0.7"),
        VERL_CRITIC_CONFIG.says("CriticConfig.validate", "train_batch_size < self.ppo_mini_batch_size", ">=0.7"),
    ),
    applies=lambda v: _counts_sequences(v, _ACTOR, _CRITIC),
    good=Example("verl", f"{_SOUND} data.train_batch_size=256"),
    bad=Example("verl", f"{_SOUND} data.train_batch_size=128"),
)
def mini_batches_are_part_of_a_step(v: View) -> Problem | None:
    """A mini-batch has no more prompts than a step.

    ppo_mini_batch_size is 256 unless it is set; actor and critic refuse a train_batch_size below it.
    """
    step, mini = v.train_batch_size, v.global_batch_size
    if v.use_dynamic_bsz or step is None or mini is None or step >= mini:
        return None
    return Problem(
        message="a mini-batch is larger than the step it is cut from: start-up stops",
        found=f"data.train_batch_size {step} with ppo_mini_batch_size {mini}",
        wanted=f"ppo_mini_batch_size of at most {step}",
        facts=("global_batch_size", "train_batch_size"),
        fixes=(Fix({"global_batch_size": step}, "one mini-batch a step"),),
    )


_BUDGET_OF_CRITIC = 32768
"""ppo_max_token_len_per_gpu of a critic that sets none; an actor's is half of it."""


def _counts_tokens(v: View) -> bool:
    """Whether megatron trains an actor or critic on static micro-batches that a number of tokens bounds."""
    is_one = v.get("strategy") == "megatron" and v.launch.reading.role in (_ACTOR, _CRITIC)
    return is_one and bool(v.get("use_dynamic_bsz")) and not v.get("dynamic_context_parallel")


@rule(
    "VERL005",
    severity="error",
    effect="crash",
    stage="training",
    source=(
        VERL_BALANCING.says("rearrange_micro_batches", "max_token_len must be greater than the sequence", ">=0.7"),
        VERL_ENGINE_UTILS.says("prepare_micro_batches", "max_token_len = max_token_len_per_gpu * sp_size", ">=0.7"),
    ),
    applies=_counts_tokens,
    good=Example("verl", f"{_ROLLOUT} {_ACTOR}.megatron.context_parallel_size=2"),
    bad=Example("verl", _ROLLOUT),
)
def longest_rollout_fits_a_micro_batch(v: View) -> Problem | None:
    """The longest prompt and response fit into one micro-batch.

    With use_dynamic_bsz a micro-batch holds ppo_max_token_len_per_gpu x CP tokens, and verl asserts that the longest
    sequence of a batch is no longer. Before 0.8 the rows are padded to prompt and response, so the first batch stops;
    since then the first one with a rollout as long as that.
    """
    budget = v.fact("ppo_max_token_len_per_gpu")
    is_default = budget is not None and budget.origin == "default"
    tokens = _BUDGET_OF_CRITIC if is_default and v.launch.reading.role == _CRITIC else v.ppo_max_token_len_per_gpu
    longest = max_sequence(v)
    if longest <= tokens * v.cp:
        return None
    enough = -(-longest // v.cp)
    return Problem(
        message="training stops at the first sequence that is longer than a micro-batch may be",
        found=f"prompt and response up to {longest} tokens, and ppo_max_token_len_per_gpu {tokens} x CP {v.cp}",
        wanted=f"ppo_max_token_len_per_gpu of at least {enough}, or a shorter response",
        facts=("ppo_max_token_len_per_gpu", "max_response_length", "max_prompt_length", "cp"),
        fixes=(Fix({"ppo_max_token_len_per_gpu": enough}, f"a micro-batch holds {enough} tokens on each GPU"),),
        severity="warning" if v.launch.reading.form == "yaml" else None,  # a base of command lines
    )


RULES = (
    trained_models_have_a_micro_batch_size,
    log_probabilities_have_a_micro_batch_size,
    sequences_of_a_step_divide_into_micro_batches,
    mini_batches_are_part_of_a_step,
    longest_rollout_fits_a_micro_batch,
)
