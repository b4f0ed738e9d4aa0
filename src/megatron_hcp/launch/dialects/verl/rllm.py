"""rLLM's launches on verl: its own names for verl's settings, and its own defaults.

Source: rllm/trainer/verl/utils.py `sync_config` and rllm/trainer/config/rllm/base.yaml (rllm-org/rllm 9beb6e0f).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from megatron_hcp.launch.forms.words.settings import Word

_BACKEND = "rllm/backend=verl"
_SHARED = {
    "rllm.data.train_batch_size": "data.train_batch_size",
    "rllm.data.max_prompt_length": "data.max_prompt_length",
    "rllm.data.max_response_length": "data.max_response_length",
    "rllm.rollout.n": "actor_rollout_ref.rollout.n",
    "rllm.algorithm.adv_estimator": "algorithm.adv_estimator",
    "rllm.algorithm.router_replay": "actor_rollout_ref.actor.router_replay.mode",
}
"""Those that hcp reads; what is written under rLLM's name takes precedence."""


def in_verls_words(words: Sequence[Word], unknown: Mapping[str, str]) -> tuple[list[Word], dict[str, str]]:
    """(the overrides with those under rLLM's names as verl's, why verl's keys are unknown); as they are if not rLLM's.

    `unknown` has the keys whose values can't be read. A setting that the launch doesn't state has rLLM's default.
    """
    if not any(word.text.lstrip("+") == _BACKEND for word in words):
        return list(words), dict(unknown)
    named = {key: word for word in words for key in [word.text.partition("=")[0].lstrip("+")]}
    found = [
        named[key]._replace(text=f"{theirs}={named[key].text.partition('=')[2]}")
        for key, theirs in _SHARED.items()
        if key in named
    ]
    hidden = {theirs: unknown[key] for key, theirs in _SHARED.items() if key in unknown}
    open_ = [theirs for key, theirs in _SHARED.items() if key not in named and theirs not in named]
    defaults = dict.fromkeys(open_, "is set by rLLM's own configuration")
    return [*words, *found], {**defaults, **unknown, **hidden}
