"""Megatron-LM: its command line, and the arguments in its functional tests' YAML.

Most modules are imported late: a check loads those of its own framework.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from megatron_hcp.launch.dialects.framework import CommandReading, Framework, StartCommand, with_dashes
from megatron_hcp.launch.dialects.mlm.keys import keys_of, known
from megatron_hcp.launch.dialects.values import Facts
from megatron_hcp.launch.fact import Beside, Dialect, Reading

if TYPE_CHECKING:
    from megatron_hcp.launch.forms.script.facts import Facts as CommandFacts
    from megatron_hcp.launch.forms.script.files import Files
    from megatron_hcp.launch.forms.yaml.settings import YamlDoc


def _sees(data: Mapping[str, Any]) -> bool:
    """Whether a YAML is one of Megatron-LM's functional tests."""
    return "MODEL_ARGS" in data or "ENV_VARS" in data


def _derive(facts: Facts, unknown: MutableMapping[str, str]) -> None:
    from megatron_hcp.launch.dialects.mlm.derived import derive

    derive(facts, unknown)


def read_words(*given: Any, **more: Any) -> Reading:
    from megatron_hcp.launch.dialects.mlm.options import read_options

    return read_options(*given, **more)


def _read_command(
    command: StartCommand, target: str, facts: CommandFacts, files: Files, types: Mapping[str, str]
) -> CommandReading:
    from megatron_hcp.launch.dialects.mlm.command import read_command

    return read_command(command, target, facts, files, types)


def _read_yaml(doc: YamlDoc, beside: Beside, dialect: Dialect) -> Reading:
    from megatron_hcp.launch.dialects.mlm.args_yaml import read_args_yaml

    return read_args_yaml(doc)


def _may_start(command: StartCommand) -> bool | None:
    from megatron_hcp.launch.dialects.mlm.command import may_start

    return may_start(command)


def _settles(command: StartCommand) -> bool:
    from megatron_hcp.launch.dialects.mlm.command import settles

    return settles(command)


def _is_training(program: str) -> bool:
    from megatron_hcp.launch.dialects.mlm.command import TRAINS

    return not program or TRAINS.search(program) is not None


MLM = Framework(
    name="mlm",
    keys_of=keys_of,
    known=known,
    derive=_derive,
    read_words=read_words,
    read_command=_read_command,
    read_yaml=_read_yaml,
    is_command_line=True,
    negates=True,
    written=with_dashes,
    sees=_sees,
    repeats=True,
    may_start=_may_start,
    settles=_settles,
    is_training=_is_training,
    named=("megatron", "pretrain"),
)
