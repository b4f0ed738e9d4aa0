"""Commands of scripts that start NeMo-RL's trainers: a configuration with overrides."""

from __future__ import annotations

from collections.abc import Mapping

from megatron_hcp.launch.dialects.framework import CommandReading, StartCommand
from megatron_hcp.launch.dialects.nemo_rl.keys import default_config
from megatron_hcp.launch.forms.script.facts import Facts
from megatron_hcp.launch.forms.script.files import Files
from megatron_hcp.launch.forms.script.flags import overrides_of
from megatron_hcp.launch.forms.words.settings import settings_of_overrides

_CONFIG = "--config"


def read_command(
    command: StartCommand, target: str, facts: Facts, files: Files, types: Mapping[str, str]
) -> CommandReading:
    """The reading of the configuration that the command names, with its overrides."""
    # Late: it loads PyYAML, which the check of another framework's script does without.
    from megatron_hcp.launch.dialects.nemo_rl.reading import configuration, nemo_rl_reading

    overrides = overrides_of(command.items, (_CONFIG,))
    named = command.values(_CONFIG)
    base = configuration(named[-1] if named else default_config(command.script), files.beside)
    files.count_as_used(base.files)
    settings, _ = settings_of_overrides([w for w in overrides.words if not w.text.startswith("-")], base.settings)
    reading = nemo_rl_reading(target, "shell", settings, unseen=base.missing or files.written(base.files))
    return CommandReading(reading, {**facts.unknown, **overrides.unknown}, overrides.unseen)
