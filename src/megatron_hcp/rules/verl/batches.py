"""verl's batches: the sizes that `validate_config` and the actor and critic classes require, and the token budget."""

from __future__ import annotations

from megatron_hcp.rules.dcp.view import max_sequence
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    VERL_ACTOR_CONFIG,
    VERL_BALANCING,
    VERL_CONFIG,
    VERL_CRITIC_CONFIG,
    VERL_ENGINE_UTILS,
    VERL_ENGINE_WORKERS,
)
from megatron_hcp.rules.verl.view import (
    ACTOR,
    BY_TOKENS,
    CRITIC,
    REF,
    SOUND,
    counts_sequences,
    token_budgets,
    validates,
)
from megatron_hcp.rules.view import View

_ROLLOUT = (
    f"{ACTOR}.strategy=megatron {ACTOR}.use_dynamic_bsz=True {ACTOR}.ppo_max_token_len_per_gpu=16384 "
    "data.max_prompt_length=1024 data.max_response_length=31744"
)


def _needs_one(v: View, section: str, per_gpu: str, over_all: str, keys: tuple[str, str]) -> Problem | None:
    """The problem of two keys of which exactly one (here: the per-GPU one) must be set; None if it is."""
    if v.use_dynamic_bsz or (v[per_gpu] is not None and v[over_all] is None):
        return None
    if v[per_gpu] is not None:
        found, fix = f"both {keys[0]} and {keys[1]}", Fix({over_all: None}, "the per-GPU size")
    else:
        found = f"use_dynamic_bsz False and no {keys[0]}" + ("" if v[over_all] is None else f", only {keys[1]}")
        fix = Fix(
            {per_gpu: 1, over_all: None} if v[over_all] is not None else {per_gpu: 1}, "one sequence per forward pass"
        )
    return Problem(
        message="verl doesn't know how to form micro-batches: start-up fails",
        found=f"{section}: {found}",
        wanted=f"{keys[0]}, or use_dynamic_bsz=True" + (" of the actor" if section == REF else ""),
        facts=(per_gpu, over_all, "use_dynamic_bsz"),
        fixes=(fix,) if section == REF else (fix, BY_TOKENS),  # ref has no such key
        # verl's own YAMLs leave the sizes to the command line.
        severity="warning" if v.launch.reading.form == "yaml" and v[per_gpu] is None and v[over_all] is None else None,
    )


@rule(
    "VERL001",
    "error crash config",
    source=(
        VERL_ACTOR_CONFIG.says("ActorConfig.__post_init__", "[actor] Please set at least one of", ">=0.7"),
        VERL_ACTOR_CONFIG.says("ActorConfig.__post_init__", "[actor] You have set both", ">=0.7"),
        VERL_CRITIC_CONFIG.says("CriticConfig.__post_init__", "self._check_mutually_exclusive", ">=0.7"),
        VERL_CONFIG.says("validate_config", "config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", ">=0.7"),
    ),
    applies=lambda v: counts_sequences(v, ACTOR, CRITIC),
    good=Example("verl", SOUND),
    bad=Example("verl", SOUND.replace(f"{ACTOR}.ppo_micro_batch_size_per_gpu=2 ", "")),
)
def trained_models_have_a_micro_batch_size(v: View) -> Problem | None:
    """Every model that verl trains has a micro-batch size or counts by tokens.

    By default both sizes are null and use_dynamic_bsz is False: verl rejects that before it starts a worker, also under
    dynamic context parallelism. For an actor trained by Megatron the older size over all ranks isn't enough: the
    per-GPU size is multiplied first.
    """
    role = v.launch.reading.role
    if role == CRITIC and v.micro_batch_size is None and v.ppo_micro_batch_size is not None:
        return None
    keys = ("ppo_micro_batch_size_per_gpu", "ppo_micro_batch_size")
    return _needs_one(v, role, "micro_batch_size", "ppo_micro_batch_size", keys)


@rule(
    "VERL002",
    "error crash config",
    source=(VERL_CONFIG.says("validate_config", "log_prob_micro_batch_size", ">=0.7"),),
    applies=lambda v: validates(v, ACTOR, REF),
    good=Example("verl", SOUND),
    bad=Example(
        "verl", SOUND.replace("actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2", "data.shuffle=True")
    ),
)
def log_probabilities_have_a_micro_batch_size(v: View) -> Problem | None:
    """Log-probability passes of rollout and reference have a micro-batch size.

    If the actor forms micro-batches by number of sequences, validate_config requires the sizes of these forward passes
    as well.
    """
    is_ref = v.launch.reading.role == REF
    of = "" if is_ref else "rollout_"
    per_gpu, over_all = f"{of}log_prob_micro_batch_size_per_gpu", f"{of}log_prob_micro_batch_size"
    if not v.use_dynamic_bsz and v[per_gpu] is None and v[over_all] is not None:
        return None
    section = REF if is_ref else "actor_rollout_ref.rollout"
    keys = ("log_prob_micro_batch_size_per_gpu", "log_prob_micro_batch_size")
    return _needs_one(v, section, per_gpu, over_all, keys)


def _counts_tokens(v: View) -> bool:
    """Whether Megatron runs one of PPO's models without dynamic CP on micro-batches limited by tokens."""
    is_one = v.get("strategy") == "megatron" and v.launch.reading.role in (ACTOR, REF, CRITIC)
    return is_one and bool(v.get("use_dynamic_bsz")) and not v.get("dynamic_context_parallel")


@rule(
    "VERL005",
    "error crash training",
    source=(
        VERL_BALANCING.says("rearrange_micro_batches", "max_token_len must be greater than the sequence", ">=0.7"),
        VERL_ENGINE_UTILS.says("prepare_micro_batches", "max_token_len = max_token_len_per_gpu * sp_size", ">=0.7"),
    ),
    applies=_counts_tokens,
    good=Example("verl", f"{_ROLLOUT} {ACTOR}.megatron.context_parallel_size=2"),
    bad=Example("verl", _ROLLOUT),
)
def longest_rollout_fits_a_micro_batch(v: View) -> Problem | None:
    """The longest prompt plus response fits into one micro-batch.

    With use_dynamic_bsz a micro-batch holds ppo_max_token_len_per_gpu x CP tokens, and verl asserts that the longest
    sequence of a batch isn't longer. It asserts the same where log-probabilities are computed:
    rollout.log_prob_max_token_len_per_gpu and ref.log_prob_max_token_len_per_gpu follow the actor's budget unless set.
    Before 0.8 rows are padded to prompt plus response, so the first batch fails; since then, the first batch with a
    rollout of that length.
    """
    longest = max_sequence(v)
    short = [budget for budget in token_budgets(v) if longest > budget.tokens * v.cp]
    if not short:
        return None
    enough = -(-longest // v.cp)
    written = " and ".join(f"{budget.key} {budget.tokens}" for budget in short)
    return Problem(
        message="training fails at the first sequence that is longer than a micro-batch may be",
        found=f"prompt and response up to {longest} tokens, and {written} x CP {v.cp}",
        wanted=f"{' and '.join(budget.key for budget in short)} of at least {enough}, or a shorter response",
        facts=(*(budget.fact for budget in short), "max_response_length", "max_prompt_length", "cp"),
        fixes=(Fix({budget.fact: enough for budget in short}, f"a micro-batch holds {enough} tokens on each GPU"),),
        severity="warning" if v.launch.reading.form == "yaml" else None,  # a base of command lines
    )


@rule(
    "VERL007",
    "error crash init",
    source=(
        VERL_ENGINE_WORKERS.says(
            "ActorRolloutRefWorker.init_model",
            "assert self.config.actor.use_dynamic_bsz == self.config.rollout.log_prob_use_dynamic_bsz",
            ">=0.8",
        ),
    ),
    applies=lambda v: (
        v.get("strategy") == "megatron"
        and v.launch.reading.role == ACTOR
        and v.get("rollout_log_prob_use_dynamic_bsz", 0) is not None
    ),
    good=Example("verl", f"{SOUND} actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=False", "verl=0.9.1"),
    bad=Example("verl", f"{SOUND} actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True", "verl=0.9.1"),
)
def rollout_forms_micro_batches_as_the_actor(v: View) -> Problem | None:
    """Old log-probabilities are computed in micro-batches of the actor's kind.

    One engine does both, with one use_dynamic_bsz. verl asserts, without a message, that
    rollout.log_prob_use_dynamic_bsz, which follows the actor's unless set, is equal to it.
    """
    actor, rollout = bool(v.use_dynamic_bsz), bool(v.rollout_log_prob_use_dynamic_bsz)
    if actor == rollout or not v.at_least("verl", "0.8"):
        return None
    return Problem(
        message="the actor and its log-probabilities form micro-batches differently: the worker fails at start-up",
        found=f"actor.use_dynamic_bsz {actor} and rollout.log_prob_use_dynamic_bsz {rollout}",
        wanted="no rollout.log_prob_use_dynamic_bsz: it then follows the actor's",
        facts=("rollout_log_prob_use_dynamic_bsz", "use_dynamic_bsz", "verl"),
        fixes=(Fix({"rollout_log_prob_use_dynamic_bsz": actor}, "as the actor"),),
        severity="warning" if v.launch.reading.form == "yaml" else None,  # a base of command lines
    )
