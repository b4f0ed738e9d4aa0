"""Hydra's options, which determine what configuration is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from megatron_hcp.launch.fact import Setting
from megatron_hcp.launch.forms.words.settings import Word

HIDDEN_WORDS = "--hidden-words"
"""A setting that represents command-line words that couldn't be read; its value says why."""
NAMING = {
    "--config-name": "--config-name",
    "-cn": "--config-name",
    "--config-dir": "--config-dir",
    "-cd": "--config-dir",
}
"""Hydra's options that decide what configuration is read, and the long form of each."""
_FLAGS = {
    HIDDEN_WORDS: HIDDEN_WORDS,
    **NAMING,
    "--config-path": "--config-path",
    "-cp": "--config-path",
}
_OWN_CONFIGS = ("ppo", "sft", "dapo", "prime", "spin", "sppo", "async", "policy")
"""verl's own configurations are named for what they train, and `trainer`; their defaults are known."""

_GROUPS = ("actor", "ref", "critic", "engine", "model_engine")
ENGINES = ("fsdp", "megatron", "mlite", "torchtitan", "veomni", "automodel", "mindspeed")
"""What verl's own files of these config groups are named for (0.5.0 to main of August 2026)."""
_BACKENDS = {"dp": "fsdp"}
"""verl's `model_engine` choices whose strategy has a different name."""


def backend(name: str) -> str:
    """The strategy that a file of a config group is for: `megatron_actor` is megatron's."""
    name = name.removesuffix("_actor").removesuffix("_ref").removesuffix("_critic")
    return _BACKENDS.get(name, name)


def config_names(words: Sequence[Word]) -> list[Setting]:
    """`--config-name=NAME`, `--config-path`, `--config-dir` as settings."""
    out = []
    for index, word in enumerate(words):
        flag, equals, value = word.text.partition("=")
        name = _FLAGS.get(flag)
        if name:
            after = words[index + 1].text if index + 1 < len(words) else ""
            out.append(Setting(name, (value if equals else after).strip("'\""), word.location))
    return out


def _is_own_config(name: str) -> bool:
    return "trainer" in name and "/" not in name and any(word in name for word in _OWN_CONFIGS)


def out_of_sight(by_key: Mapping[str, Setting]) -> str | None:
    """Why settings may exist that aren't read: a custom configuration or group."""
    for key, setting in by_key.items():
        if key == HIDDEN_WORDS:
            return str(setting.value)
        named = by_key.get("--config-name")
        own = named is not None and _is_own_config(str(named.value))
        if key == "--config-dir" or (key == "--config-path" and not own):
            return f"{key} names a folder whose configurations are not read"
        if key == "--config-name" and not _is_own_config(str(setting.value)):
            return f"the configuration {str(setting.value)[:60]} is not read"
        if key == "hydra.searchpath":
            return f"{key} names folders whose configurations are not read"
        group = key.partition("@")[0]
        is_other = group in _GROUPS and isinstance(setting.value, str) and backend(setting.value) not in ENGINES
        if group == "experiment" or is_other:
            return f"the {group} {str(setting.value)[:60]} is not read"
    return None
