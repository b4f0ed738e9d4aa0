"""What verl's rules share: whom they concern, and the token budgets of a role's passes."""

from __future__ import annotations

import re

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.rules.rule import Fix
from megatron_hcp.rules.view import View

ACTOR, REF, CRITIC = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic"
SOUND = (
    f"{ACTOR}.strategy=megatron {ACTOR}.ppo_micro_batch_size_per_gpu=2 "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2 critic.enable=False"
)
"""A launch that verl accepts, for examples."""
BY_TOKENS = Fix({"use_dynamic_bsz": True}, "micro-batches by tokens: ppo_max_token_len_per_gpu")
_UNVALIDATED = re.compile(r"fully_async|(^|[./])main_gkd(\.|$)")

_DEFAULT_OF_CRITIC = 32768
"""The default ppo_max_token_len_per_gpu of a critic; an actor's is half of it."""


class TokenBudget(NamedTuple):
    """Tokens per GPU in a micro-batch of one pass; with CP, a micro-batch holds CP times as many.

    `fact` is the fact's name, `key` the key as a message names it; `is_stated` is False for verl's default.
    """

    fact: str
    key: str
    tokens: int
    is_stated: bool


def token_budgets(v: View) -> list[TokenBudget]:
    """The budgets of the passes that the role's model makes, except those that only follow the actor's.

    The critic trains with its own budget and, since verl 0.8, computes values with another one that doesn't follow it.
    The actor trains with its own budget and computes the old log-probabilities with the rollout's; in bypass mode the
    rollout engine's are used, and in LoRA training the reference model is the actor without its adapter.
    """
    role, settings = v.launch.reading.role, v.launch.reading.settings
    if role == REF:
        is_actor = any(setting.key.startswith("actor_rollout_ref.model.lora") for setting in settings)
        own = None if is_actor or v.log_prob_use_dynamic_bsz is False else v.log_prob_max_token_len_per_gpu
        return _stated("log_prob_max_token_len_per_gpu", "ref", own)
    trained = v.fact("ppo_max_token_len_per_gpu")
    is_stated = trained is None or trained.origin != "default"
    tokens = _DEFAULT_OF_CRITIC if role == CRITIC and not is_stated else v.ppo_max_token_len_per_gpu
    budgets = []
    if tokens is not None:
        budgets.append(TokenBudget("ppo_max_token_len_per_gpu", "ppo_max_token_len_per_gpu", tokens, is_stated))
    values = v.ppo_infer_max_token_len_per_gpu if role == CRITIC else None
    if values is not None and (tokens is None or values < tokens) and v.at_least("verl", "0.8"):
        budgets += _stated("ppo_infer_max_token_len_per_gpu", "critic", values)
    if role == ACTOR and not v.bypass_mode:
        name = "rollout_log_prob_max_token_len_per_gpu"
        budgets += _stated(name, "rollout", v[name])
    return budgets


def _stated(fact: str, section: str, tokens: int | None) -> list[TokenBudget]:
    return [] if tokens is None else [TokenBudget(fact, f"{section}.{fact.removeprefix('rollout_')}", tokens, True)]


def counts_sequences(v: View, *roles: str) -> bool:
    """Whether a model in one of the roles, trained by Megatron, forms micro-batches by number of sequences."""
    is_one = v.dialect == "verl" and v.get("strategy") == "megatron" and v.launch.reading.role in roles
    return is_one and v.get("use_dynamic_bsz") is not True


def validates(v: View, *roles: str) -> bool:
    """The same, if the program calls `validate_config`: verl's fully asynchronous trainer and its recipe gkd don't."""
    return counts_sequences(v, *roles) and not is_unvalidated(v)


def is_unvalidated(v: View) -> bool:
    """Whether the program is one that does not call `validate_config`."""
    return _UNVALIDATED.search(str(v.get("script") or "")) is not None
