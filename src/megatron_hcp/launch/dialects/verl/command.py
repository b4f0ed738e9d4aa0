"""Commands of scripts that start verl's trainers, or rLLM's on verl."""

from __future__ import annotations

from collections.abc import Mapping

from megatron_hcp.launch.dialects.framework import CommandReading, StartCommand
from megatron_hcp.launch.dialects.verl.config_names import HIDDEN_WORDS, NAMING, config_names
from megatron_hcp.launch.dialects.verl.reading import verl_reading
from megatron_hcp.launch.dialects.verl.rllm import in_verls_words
from megatron_hcp.launch.forms.script.facts import Facts
from megatron_hcp.launch.forms.script.files import Files
from megatron_hcp.launch.forms.script.flags import overrides_of
from megatron_hcp.launch.forms.words.settings import Word, removed_keys, settings_of_overrides


def read_command(
    command: StartCommand, target: str, facts: Facts, files: Files, types: Mapping[str, str]
) -> CommandReading:
    """The reading of the overrides; the keys present determine the backend and the trainer, even without values."""
    overrides = overrides_of(command.items, NAMING)
    words, unknown = in_verls_words(overrides.words, overrides.unknown)
    words += [Word(f"{key}=???") for key in unknown]
    if overrides.unseen is not None:
        words.append(Word(f"{HIDDEN_WORDS}={overrides.unseen}"))
    settings, others = settings_of_overrides(words)
    reading = verl_reading(target, "overrides", [*settings, *config_names(others)])
    reading = reading._replace(removed=removed_keys(words))
    return CommandReading(reading, {**facts.unknown, **unknown}, overrides.unseen)
