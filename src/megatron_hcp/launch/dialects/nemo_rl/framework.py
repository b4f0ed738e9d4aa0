"""NeMo-RL: its read_nemo_rl_yaml with what that inherits, its overrides, and what it computes from them.

Most modules are imported late: a check loads those of its own framework.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING

from megatron_hcp.launch.dialects.framework import CommandReading, Framework, StartCommand
from megatron_hcp.launch.dialects.nemo_rl import keys
from megatron_hcp.launch.dialects.values import Facts
from megatron_hcp.launch.fact import Acceptance, Beside, Dialect, Fact, Reading, Setting

if TYPE_CHECKING:
    from megatron_hcp.launch.forms.script.facts import Facts as CommandFacts
    from megatron_hcp.launch.forms.script.files import Files
    from megatron_hcp.launch.forms.words.settings import WordList
    from megatron_hcp.launch.forms.yaml.settings import YamlDoc


def _derive(facts: Facts, unknown: MutableMapping[str, str]) -> None:
    from megatron_hcp.launch.dialects.nemo_rl.derived import derive

    derive(facts, unknown)


def _nodes_by(facts: Mapping[str, Fact], count: int) -> tuple[str, int]:
    from megatron_hcp.launch.dialects.nemo_rl.derived import nodes_by

    return nodes_by(facts, count)


def _read_words(
    dialect: Dialect, listed: WordList, target: str, *, text: str | None, acceptances: tuple[Acceptance, ...]
) -> Reading:
    from megatron_hcp.launch.dialects.nemo_rl.reading import nemo_rl_reading

    return nemo_rl_reading(target, "overrides", listed.settings, text=text, acceptances=acceptances)


def _read_again(reading: Reading, settings: Iterable[Setting]) -> Reading:
    from megatron_hcp.launch.dialects.nemo_rl.reading import nemo_rl_reading

    return nemo_rl_reading(reading.target, reading.form, settings, unseen=reading.unseen)


def _read_yaml(doc: YamlDoc, beside: Beside, dialect: Dialect) -> Reading:
    from megatron_hcp.launch.dialects.nemo_rl.reading import read_nemo_rl_yaml

    return read_nemo_rl_yaml(doc, beside)


def _read_command(
    command: StartCommand, target: str, facts: CommandFacts, files: Files, types: Mapping[str, str]
) -> CommandReading:
    from megatron_hcp.launch.dialects.nemo_rl.command import read_command

    return read_command(command, target, facts, files, types)


_PROGRAM = r"(^|/)run_\w{0,40}(grpo|sft|dpo|ppo|rm|distillation|gdpo|vlm)\w{0,40}\.py$"


def _starts(command: StartCommand) -> bool:
    """By the overrides, or by the program where it gets a configuration, or has its own, and no other option."""
    if any(key.startswith(keys.SECTIONS) for key in command.keys):
        return True
    if not command.flags and keys.default_config(command.script) is not None:
        return True
    if command.flags != {"config"}:
        return False
    return re.search(_PROGRAM, command.script) is not None or _trains(command.keys)


def _trains(names: Iterable[str]) -> bool:
    """Whether overrides of the user's own program are those of a training: its sections, and the cluster's."""
    sections = {name.partition(".")[0] for name in names}
    return "cluster" in sections and not sections.isdisjoint(("grpo", "loss_fn", "checkpointing"))


def _inherits(doc: YamlDoc, beside: Beside) -> bool:
    if "defaults" not in doc.data:
        return False
    from megatron_hcp.launch.dialects.nemo_rl.reading import inherits_a_policy

    return inherits_a_policy(doc, beside)


NEMO_RL = Framework(
    name="nemo-rl",
    keys_of=keys.keys_of,
    known=keys.known,
    derive=_derive,
    nodes_by=_nodes_by,
    read_words=_read_words,
    read_again=_read_again,
    read_yaml=_read_yaml,
    read_command=_read_command,
    starts=_starts,
    rows=keys.ROWS,
    defaults=keys.DEFAULTS,
    model_decides=True,
    sections=keys.SECTIONS,
    inherits=_inherits,
    refers=True,
    named=("nemo",),
)
