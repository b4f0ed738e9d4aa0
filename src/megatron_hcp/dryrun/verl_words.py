"""The overrides of a verl launch, as hcp's program for it gets them: its actor's, without data, rewards and loggers."""

from __future__ import annotations

import json
import re
from typing import Any

from megatron_hcp.dryrun.words import ProgramWords, Replaced, refuse_removed
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch, Setting
from megatron_hcp.launch.forms.words.hydra import hydra_value

_CONFIG, _USUAL = "--config-name", "ppo_trainer"
_LEFT_OUT = {
    "data": ("data.train_files", "data.val_files", "data.custom_cls", "data.cache_dir"),
    "checkpoint": (
        "actor_rollout_ref.actor.load_checkpoint",
        "actor_rollout_ref.actor.megatron.dist_checkpointing_path",
        "actor_rollout_ref.actor.megatron.use_dist_checkpointing",
        "actor_rollout_ref.model.use_shm",
    ),
    "code of others": ("actor_rollout_ref.model.trust_remote_code", "actor_rollout_ref.model.external_lib"),
    "the trainer, rewards and other models": ("trainer.", "reward", "critic.", "ray_kwargs.", "custom_reward_function.",
                                              "actor_rollout_ref.ref."),
}  # fmt: skip
"""What an actor without rollouts and a cluster doesn't read."""
_ROLLOUT = "actor_rollout_ref.rollout."
_OF_TRAINING, _ALSO = ("log_prob_", "multi_turn.", "calculate_log_probs"), ("n", "name", "temperature")
"""How settings of the rollout engine begin that the trainer's own code reads, and whole names of others."""
_PLAIN = re.compile(r"[\w./:@+-]+")
_BEFORE_QUOTE = re.compile(r"(?<!\\)\\+(?='|\Z)")


def verl_words(launch: Launch) -> ProgramWords:
    """The name of the launch's configuration and its own overrides.

    Raises:
        HcpError: it trains no actor with main_ppo's configuration, or not all its overrides are known.
    """
    reading = launch.reading
    if reading.role != "actor_rollout_ref.actor" or launch.facts["strategy"].value != "megatron":
        raise HcpError(f"found verl's {reading.role}", wanted="an actor that Megatron trains by verl.trainer.main_ppo")
    if reading.unseen:
        raise HcpError(f"an override of the launch is not known: {reading.unseen}", wanted="each")
    refuse_removed(key for key in reading.removed if not _purpose(key))
    for key, why in reading.unknown.items():
        if "." in key and not key.startswith(("env.", "default_of.")) and not _purpose(key):
            raise HcpError(f"an override of the launch is not known: {key}: {why}", wanted="each",
                           do=f"state it: -- {key}=VALUE")  # fmt: skip
    name, words = _USUAL, []
    groups: dict[str, list[str]] = {what: [] for what in (*_LEFT_OUT, "rollout engine")}
    for setting in reading.settings:
        if setting.key == _CONFIG:
            name = str(setting.value)
        elif what := _purpose(setting.key):
            groups[what].append(_written(setting))
        elif setting.key not in reading.unknown:
            words.append(_written(setting))
    rows = tuple(Replaced(what, tuple(was), ()) for what, was in groups.items() if was)
    return ProgramWords((name, *words), rows)


def _purpose(key: str) -> str:
    """What an override that is left out is for; "" for one that stays."""
    if key.startswith(_ROLLOUT):
        own = key.removeprefix(_ROLLOUT)
        return "" if own.startswith(_OF_TRAINING) or own in _ALSO else "rollout engine"
    return next((what for what, starts in _LEFT_OUT.items() if key.startswith(starts)), "")


def _written(setting: Setting) -> str:
    return f"{setting.sign or ''}{setting.key}={_text(setting.value)}"


def _text(value: Any) -> str:
    """The value in Hydra's grammar, in which a text of other than plain characters is quoted.

    So is one that would be read as a number or a word. Backslashes are doubled only before a quote (Hydra's grammar).
    """
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and hydra_value(value) == value:
            return value
        doubled = _BEFORE_QUOTE.sub(lambda found: 2 * found[0], value)
        return "'" + doubled.replace("'", "\\'") + "'"
    return json.dumps(value)
