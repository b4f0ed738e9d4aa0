"""Commands of scripts that start Megatron-Bridge: its launchers, and programs with its overrides."""

from __future__ import annotations

from collections.abc import Mapping

from megatron_hcp.launch.dialects.bridge.named import recipe_of_options
from megatron_hcp.launch.dialects.bridge.options import bridge_facts, bridge_unknown, bridge_words
from megatron_hcp.launch.dialects.bridge.reading import bridge_reading
from megatron_hcp.launch.dialects.framework import CommandReading, StartCommand
from megatron_hcp.launch.fact import Fact
from megatron_hcp.launch.forms.script.facts import Facts
from megatron_hcp.launch.forms.script.files import Files
from megatron_hcp.launch.forms.script.flags import flags_of, overrides_of
from megatron_hcp.launch.forms.words.settings import removed_keys, settings_of_overrides


def read_command(
    command: StartCommand, target: str, facts: Facts, files: Files, types: Mapping[str, str]
) -> CommandReading:
    """The reading of the overrides, and of what the launcher's options set."""
    overrides = overrides_of(command.items)
    words = [word for word in overrides.words if not word.text.startswith("-")]
    flags = flags_of(command.items, types, short=True)
    facts.known |= bridge_facts(flags.settings)
    recipe = recipe_of_options(flags.settings)
    if recipe is not None:
        facts.known["recipe"] = Fact(recipe, "launch")
    settings, _ = settings_of_overrides(bridge_words(flags.settings, words))
    reading = bridge_reading("bridge", target, "overrides", settings, complete=False)
    reading = reading._replace(removed=removed_keys(words))
    unknown = {**facts.unknown, **bridge_unknown(flags.unknown), **overrides.unknown}
    return CommandReading(reading, unknown, overrides.unseen)
