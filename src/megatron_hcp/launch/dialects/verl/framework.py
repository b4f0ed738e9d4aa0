"""verl: its trainers' read_verl_yaml and overrides, and the launches of rLLM on it.

Most modules are imported late: a check loads those of its own framework.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING

from megatron_hcp.launch.dialects.framework import CommandReading, Framework, StartCommand, always
from megatron_hcp.launch.dialects.values import Facts
from megatron_hcp.launch.dialects.verl import keys
from megatron_hcp.launch.fact import Acceptance, Beside, Dialect, Reading, Setting

if TYPE_CHECKING:
    from megatron_hcp.launch.forms.script.facts import Facts as CommandFacts
    from megatron_hcp.launch.forms.script.files import Files
    from megatron_hcp.launch.forms.words.settings import WordList
    from megatron_hcp.launch.forms.yaml.settings import YamlDoc


def _derive(facts: Facts, unknown: MutableMapping[str, str]) -> None:
    from megatron_hcp.launch.dialects.verl.derived import derive

    derive(facts, unknown)


def _read_words(
    dialect: Dialect, listed: WordList, target: str, *, text: str | None, acceptances: tuple[Acceptance, ...]
) -> Reading:
    from megatron_hcp.launch.dialects.verl.config_names import config_names
    from megatron_hcp.launch.dialects.verl.reading import verl_reading
    from megatron_hcp.launch.forms.words.settings import removed_keys

    settings = [*listed.settings, *config_names(listed.others)]
    reading = verl_reading(target, "overrides", settings, text=text, acceptances=acceptances)
    return reading._replace(removed=removed_keys(listed.words))


def _read_again(reading: Reading, settings: Iterable[Setting]) -> Reading:
    from megatron_hcp.launch.dialects.verl.reading import verl_reading

    return verl_reading(reading.target, reading.form, settings, role=reading.role)


def _read_yaml(doc: YamlDoc, beside: Beside, dialect: Dialect) -> Reading:
    from megatron_hcp.launch.dialects.verl.reading import read_verl_yaml

    return read_verl_yaml(doc)


def _read_command(
    command: StartCommand, target: str, facts: CommandFacts, files: Files, types: Mapping[str, str]
) -> CommandReading:
    from megatron_hcp.launch.dialects.verl.command import read_command

    return read_command(command, target, facts, files, types)


_PROGRAM = r"(^|[./])verl[./]|main_(ppo|dapo|generation)|(^|\.)(fully_async|one_step_off)"


def _may_start(command: StartCommand) -> bool | None:
    """Whether a command starts a trainer; False for another program of verl's."""
    if command.by_keys == "verl" or re.search(_PROGRAM, command.script):
        return bool(command.keys) or "main_" in command.script or "sft_trainer" in command.script
    return None


def _left_open(main: Reading, other: Reading, unknown: Mapping[str, str]) -> Mapping[str, str]:
    from megatron_hcp.launch.dialects.verl.reading import left_open

    return left_open(main, other, unknown)


def _by_ray(program: str) -> bool:
    """Ray starts the ranks of all trainers but the fine-tuning ones that torchrun starts."""
    return "sft" not in program or program.removesuffix(".py").endswith("_ray")


VERL = Framework(
    name="verl",
    keys_of=keys.keys_of,
    known=keys.known,
    derive=_derive,
    read_words=_read_words,
    read_again=_read_again,
    read_yaml=_read_yaml,
    read_command=_read_command,
    may_start=_may_start,
    rows=keys.ROWS,
    model_decides=True,
    owns=keys.owns,
    knows=keys.knows,
    may_have=keys.SECTIONS,
    settles=always,
    by_ray=_by_ray,
    several_models=True,
    left_open=_left_open,
    named=("verl",),
)
