"""The words of an ms-swift launch, as hcp's program for it gets them: its command and arguments, without files."""

from __future__ import annotations

from typing import Any

from megatron_hcp.dryrun.words import ProgramWords, Replaced
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.dialects.ms_swift import EXTRA, command_of, mapping_in
from megatron_hcp.launch.fact import Launch, Setting

_PURPOSES = {
    "data": ("dataset", "val_dataset", "cached_", "custom_dataset", "data_files"),
    "template": ("system",),
    "folders": ("output_dir", "tensorboard_dir", "logging_dir"),
    "checkpoint": ("mcore_model", "mcore_ref_model", "mcore_teacher_model", "load_args", "ckpt_dir", "resume_"),
    "logs": ("report_to", "wandb_", "swanlab_"),
    "code of others": ("external_plugins", "custom_register_path"),
    "hub": ("use_hf", "hub_token"),
}
"""How the arguments begin that are replaced, by what they are for."""
_REGISTERED = frozenset(
    "model_type template tuner_type agent_template loss_type loss_scale callbacks reward_funcs reward_model_plugin "
    "multi_turn_scheduler gym_env".split()
)
"""Arguments whose values are names that a plugin may register."""
_ADAPTERS = ("adapters", "ref_adapters", "mcore_adapter", "mcore_ref_adapter")
"""Checkpoints that decide what is trained."""
_RANKS = ("start", "nodes", "gpus_per_node", "ntasks_per_node", "world_size")
"""Facts without an argument; so are those of a launcher or variable, whose names have a dot."""
_NOW = {"data": ("--dataset", "hcp-mock"), "folders": ("--output_dir", "hcp-output"), "hub": ("--use_hf", "true")}
"""The cache of Hugging Face has the model's config.json."""


def ms_swift_words(launch: Launch) -> ProgramWords:
    """The command's name and the launch's own arguments.

    Raises:
        HcpError: it names no command or model, it continues from an adapter, or not all its arguments are known.
    """
    reading = launch.reading
    script = launch.facts["script"].value if "script" in launch.facts else ""
    command = command_of(str(script))
    if not command:
        raise HcpError("found no command of ms-swift's", wanted="a script with megatron sft, pt or rlhf")
    if reading.unseen:
        raise HcpError(f"a word of the launch is not known: {reading.unseen}", wanted="every word")
    for key, why in reading.unknown.items():
        if not ("." in key or key in _RANKS or _purpose(key)):
            raise HcpError(f"a word of the launch is not known: --{key}: {why}", wanted="every word",
                           do=f"state it: -- --{key} VALUE")  # fmt: skip
    keys = {setting.key for setting in reading.settings}
    if "model" not in keys:
        raise HcpError("found no --model", wanted="the model's name or folder", do="state it: -- --model NAME")
    if found := sorted(keys.intersection(_ADAPTERS)):
        raise HcpError(f"found --{found[0]}", wanted="no adapter, which decides what is trained")
    if "local_repo_path" in keys:
        raise HcpError("found --local_repo_path", wanted="no code of others that builds the model")
    if "new_special_tokens" in keys:
        raise HcpError("found --new_special_tokens", wanted="none: the tokenizer sizes the model")
    groups: dict[str, list[str]] = {what: [] for what in _PURPOSES}
    words: list[str] = []
    for setting in _stated(reading.settings):
        groups.get(_purpose(setting.key), words).extend(_written(setting))
    rows = [Replaced(what, tuple(was), _NOW.get(what, ())) for what, was in groups.items()]
    more = (word for row in rows for word in row.now)
    names = _of_plugins(reading.settings) if groups["code of others"] else ()
    return ProgramWords((command, *words, *more), tuple(row for row in rows if row.was or row.now), names)


def _of_plugins(settings: tuple[Setting, ...]) -> tuple[str, ...]:
    """What a plugin that is left out may have registered; it may also be the type of a model that states none."""
    values = [word for one in settings if one.key in _REGISTERED for word in _written(one)[1:]]
    return ("model_type", *values)


def _stated(settings: tuple[Setting, ...]) -> list[Setting]:
    """The arguments without those that a reading takes from `megatron_extra_kwargs`."""
    extra = {name: value for one in settings if one.key == EXTRA for name, value in mapping_in(one.value).items()}
    return [one for one in settings if one.key not in extra or extra[one.key] != one.value]


def _purpose(key: str) -> str:
    """What a replaced argument is for; "" for one that stays."""
    return next((what for what, starts in _PURPOSES.items() if key.startswith(starts)), "")


def _written(setting: Setting) -> list[str]:
    values: list[Any] = setting.value if isinstance(setting.value, list) else [setting.value]
    return [f"--{setting.key}", *(str(value) for value in values if value is not None)]
