"""The overrides of a verl launch, as hcp's program for it gets them: of its actor, or of its SFT trainer's model."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from megatron_hcp.dryrun.models import public_name
from megatron_hcp.dryrun.words import MODEL, ProgramWords, Replaced, refuse_removed
from megatron_hcp.ground.asked import is_there
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.fact import Launch, Reading, Setting
from megatron_hcp.launch.forms.script.arguments import command_words
from megatron_hcp.launch.forms.words.hydra import hydra_value
from megatron_hcp.launch.hf_cache import is_model_name

_CONFIG = "--config-name"
_ROLES = {
    "actor_rollout_ref.actor": ("ppo_trainer", "actor_rollout_ref.model.path"),
    "engine": ("sft_trainer_engine", "model.path"),
}
"""By whose model it is: the configuration that its program has by default, and the key of the model's path."""
_FOLDER, _USUAL_FOLDER = "--config-path", "verl/trainer/config"
_PROGRAM = re.compile(r"(?:.*/)?(verl(?:[./]\w+)+)[./]\w+")
"""A program of verl's own: the folder that it lies in, as a path or a module; a checkout's folder may be verl too."""
_LEFT_OUT = {
    "data": ("data.train_files", "data.val_files", "data.custom_cls", "data.cache_dir"),
    "checkpoint": (
        "actor_rollout_ref.actor.load_checkpoint",
        "actor_rollout_ref.actor.megatron.dist_checkpointing_path",
        "actor_rollout_ref.actor.megatron.use_dist_checkpointing",
        "actor_rollout_ref.model.use_shm",
        "engine.dist_checkpointing_path",
        "engine.use_dist_checkpointing",
        "model.use_shm",
        "checkpoint.",
    ),
    "profiles": ("global_profiler.", "actor_rollout_ref.actor.profiler.", "profiler."),
    "code of others": ("actor_rollout_ref.model.trust_remote_code", "actor_rollout_ref.model.external_lib",
                       "model.trust_remote_code", "model.external_lib"),
    "the trainer, rewards and other models": ("trainer.", "reward", "critic.", "ray_kwargs.", "custom_reward_function.",
                                              "actor_rollout_ref.ref."),
}  # fmt: skip
"""What a model that is trained without rollouts and a cluster doesn't read."""
_ROLLOUT = "actor_rollout_ref.rollout."
_OF_TRAINING, _ALSO = ("log_prob_", "multi_turn.", "calculate_log_probs"), ("n", "name", "temperature")
"""How settings of the rollout engine begin that the trainer's own code reads, and whole names of others."""
_MINDSPEED = re.compile(
    r".*\.override_transformer_config\.(use_(flash_attn|fused_\w+|ascend_\w+|naive_\w+|triton_gdn)|context_parallel_algo)"
)
"""Options that MindSpeed adds to Megatron-LM on Ascend's devices, where its kernels stand in for those of a GPU."""
_ASCENDS = re.compile(r"env\.\w*(ASCEND|HCCL)\w*")
_PLAIN = re.compile(r"[\w./:@+-]+")
_BEFORE_QUOTE = re.compile(r"(?<!\\)\\+(?='|\Z)")


def verl_words(launch: Launch) -> ProgramWords:
    """The folder of the launch's configuration in verl, its name, and the launch's own overrides.

    Raises:
        HcpError: Megatron trains neither its actor nor its SFT trainer's model, or not all its overrides are known.
    """
    reading = launch.reading
    if reading.role not in _ROLES or launch.facts["strategy"].value != "megatron":
        raise HcpError(
            f"found verl's {reading.role}, trained by {visible(str(launch.facts['strategy'].value))[:40]}",
            wanted="an actor, or the model of sft_trainer, that Megatron trains",
        )
    usual, path = _ROLES[reading.role]
    if reading.unseen:
        raise HcpError(f"an override of the launch is not known: {reading.unseen}", wanted="each")
    refuse_removed(key for key in reading.removed if not _purpose(key))
    model = _model(reading, path)
    for key, why in reading.unknown.items():
        if (
            "." in key
            and not key.startswith(("env.", "default_of."))
            and not _purpose(key)
            and not (model and key == path)
        ):
            raise HcpError(f"an override of the launch is not known: {key}: {why}", wanted="each",
                           do=f"state it: -- {key}=VALUE")  # fmt: skip
    folder, name, words = _folder(launch), usual, []
    groups: dict[str, list[str]] = {what: [] for what in (*_LEFT_OUT, "rollout engine", "MindSpeed")}
    is_ascends = _is_ascends(launch)
    for setting in reading.settings:
        if setting.key == _CONFIG:
            name = str(setting.value)
        elif setting.key == _FOLDER or (model and setting.key == path):
            continue
        elif what := _purpose(setting.key):
            groups[what].append(_written(setting))
        elif is_ascends and _MINDSPEED.fullmatch(setting.key):
            groups["MindSpeed"].append(_written(setting))
        elif setting.key not in reading.unknown:
            words.append(_written(setting))
    rows = tuple(Replaced(what, tuple(was), ()) for what, was in groups.items() if was)
    models = (model,) if model else ()
    return ProgramWords((folder, name, *words, *(word for row in models for word in row.now)), (*rows, *models))


def _folder(launch: Launch) -> str:
    """Where the program of the launch has its configurations, in verl's tree: beside itself; none is read elsewhere."""
    script = str(launch.facts["script"].value) if "script" in launch.facts else ""
    own = _PROGRAM.fullmatch(script.removesuffix(".py"))
    return f"{own[1].replace('.', '/')}/config" if own else _USUAL_FOLDER


def _is_ascends(launch: Launch) -> bool:
    """Whether the launch is for Ascend's devices, in whose place GPUs are pretended."""
    is_set = any(setting.key == "trainer.device" and setting.value == "npu" for setting in launch.reading.settings)
    return is_set or any(map(_ASCENDS.fullmatch, launch.facts))


def _model(reading: Reading, key: str) -> Replaced | None:
    """The public model that stands for one in a folder that isn't here; None where the launch's own stays."""
    written = next((str(one.value) for one in reading.settings if one.key == key), "")
    if key in reading.unknown:
        known = (str(word) for word in command_words(reading.items).argv or ())
        written = next((word.partition("=")[2] for word in known if word.startswith(f"{key}=")), "")
    if is_model_name(written) or is_there(os.path.expanduser(written)):
        return None
    name = public_name(written)
    return Replaced(MODEL, (f"{key}={written}",), (f"{key}={name}",)) if name else None


def _purpose(key: str) -> str:
    """What an override that is left out is for; "" for one that stays."""
    if key == "trainer.use_legacy_worker_impl":
        return ""
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
