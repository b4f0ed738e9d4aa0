"""Megatron-Bridge: a ConfigContainer, or overrides of a recipe.

Most modules are imported late: a check loads those of its own framework.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING

from megatron_hcp.launch.dialects.bridge import keys
from megatron_hcp.launch.dialects.framework import CommandReading, Framework, StartCommand, always
from megatron_hcp.launch.dialects.values import Facts
from megatron_hcp.launch.fact import Acceptance, Beside, Dialect, Reading, Setting

if TYPE_CHECKING:
    from megatron_hcp.launch.forms.script.facts import Facts as CommandFacts
    from megatron_hcp.launch.forms.script.files import Files
    from megatron_hcp.launch.forms.words.settings import WordList
    from megatron_hcp.launch.forms.yaml.settings import YamlDoc


def _derive(facts: Facts, unknown: MutableMapping[str, str]) -> None:
    from megatron_hcp.launch.dialects.bridge.derived import derive

    derive(facts, unknown)


def _read_words(
    dialect: Dialect, listed: WordList, target: str, *, text: str | None, acceptances: tuple[Acceptance, ...]
) -> Reading:
    from megatron_hcp.launch.dialects.bridge.reading import bridge_reading
    from megatron_hcp.launch.forms.words.settings import removed_keys

    reading = bridge_reading(
        dialect, target, "overrides", listed.settings, complete=False, text=text, acceptances=acceptances
    )
    return reading._replace(removed=removed_keys(listed.words))


def _read_again(reading: Reading, settings: Iterable[Setting]) -> Reading:
    from megatron_hcp.launch.dialects.bridge.reading import bridge_reading

    return bridge_reading(reading.dialect, reading.target, reading.form, settings, complete=reading.complete)


def _read_yaml(doc: YamlDoc, beside: Beside, dialect: Dialect) -> Reading:
    from megatron_hcp.launch.dialects.bridge.reading import read_bridge_yaml

    return read_bridge_yaml(doc, dialect)


def _read_command(
    command: StartCommand, target: str, facts: CommandFacts, files: Files, types: Mapping[str, str]
) -> CommandReading:
    from megatron_hcp.launch.dialects.bridge.command import read_command

    return read_command(command, target, facts, files, types)


_PROGRAM = (
    r"(^|/)(run_recipe|run_script|setup_experiment|bootstrap|launch_with_nemo_run|04_launch_slurm_with_nemo_run)\.py$"
    r"|[Mm]egatron[._-]?[Bb]ridge(?!.*(^|/)(convert|prepare|import|export)_\w+\.py$)"
)
_EXAMPLES = re.compile(r"(^|/)examples/(models|megatron_mimo)/")
_EXAMPLE = re.compile(r"(\d\d_(?:quickstart_)?)?(?:pretrain|finetune)\w*\.py$")
"""The folders of its own examples, and the names of those that train; the tutorials' begin with a number."""
_OF_A_MODEL = {"num_layers", "hidden_size"}


def _may_start(command: StartCommand) -> bool | None:
    """Whether a command starts a training, by its overrides or its program."""
    program = command.script.rpartition("Megatron-LM/")[2]
    if command.by_keys == "bridge" or re.search(_PROGRAM, program):
        return True
    return True if _is_an_example(program) and command.flags.isdisjoint(_OF_A_MODEL) else None


def _is_an_example(program: str) -> bool:
    """Whether one of Bridge's examples or tutorials is started. They build the model, so no option is one of it."""
    folder, _, name = program.rpartition("/")
    named = _EXAMPLE.match(name)
    return named is not None and (named[1] is not None or _EXAMPLES.search(f"{folder}/") is not None)


BRIDGE = Framework(
    name="bridge",
    keys_of=keys.keys_of,
    known=keys.known,
    derive=_derive,
    read_words=_read_words,
    read_again=_read_again,
    read_yaml=_read_yaml,
    read_command=_read_command,
    may_start=_may_start,
    has_recipes=True,
    owns=keys.owns,
    knows=keys.knows,
    may_have=keys.SECTIONS,
    is_target=keys.is_bridge_target,
    names_recipe=keys.names_recipe,
    settles=always,
)
BRIDGE_PROVIDER = BRIDGE._replace(name="bridge-provider", base="bridge")
"""A model provider alone, as custom training programs take it."""
