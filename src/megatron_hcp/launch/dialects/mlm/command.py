"""Commands of scripts that start Megatron-LM, or a program that takes its options."""

from __future__ import annotations

import re
from collections.abc import Mapping

from megatron_hcp.bash.value import Unseen
from megatron_hcp.launch.dialects.bridge.options import BRIDGE_FLAGS
from megatron_hcp.launch.dialects.framework import CommandReading, StartCommand
from megatron_hcp.launch.dialects.mlm.elsewhere import OWN_PROGRAMS, taken_from_elsewhere
from megatron_hcp.launch.dialects.mlm.keys import known
from megatron_hcp.launch.fact import Reading
from megatron_hcp.launch.forms.script.facts import Facts, is_parallel
from megatron_hcp.launch.forms.script.files import Files
from megatron_hcp.launch.forms.script.flags import flags_of

TRAINS = re.compile(r"(^|/)(pretrain|finetune|train)\w*\.py$")
OWN = re.compile(r"(^|/)(pretrain\w*|train_rl)\.py$")
"""Megatron-LM's own programs: whatever their arguments are, they form its command line."""
_CORE = {"num_layers", "hidden_size", "num_attention_heads", "use_mcore_models"}
_MOST_SHARED = 3
_LEAST_KNOWN = 1 / 3
"""Of a program that is not known by name, the share of its options that Megatron-LM has: every trainer has a few."""


def may_start(command: StartCommand) -> bool | None:
    """Whether a command takes Megatron-LM's options, by the program or by those that it has."""
    flags = command.flags
    if flags & _CORE or any(is_parallel({flag}) for flag in flags):
        return _takes_options(command.script, flags)
    if OWN.search(command.script) and any(isinstance(item, Unseen) for item in command.items):
        return True
    return TRAINS.search(command.script) is not None and not flags.isdisjoint(command.megatrons)


def _takes_options(script: str, flags: set[str]) -> bool:
    """Whether the options may be Megatron-LM's: a program with more of its own has a parser of its own."""
    least = 0.5 if script else _LEAST_KNOWN
    return re.search(OWN_PROGRAMS, script) is not None or _count(flags) >= least * len(flags)


def settles(command: StartCommand) -> bool:
    """Whether the options are Megatron-LM's beyond doubt: Bridge's launchers have a few of them."""
    return _count(command.flags - set(BRIDGE_FLAGS)) > _MOST_SHARED


def _count(flags: set[str]) -> int:
    return sum(flag in known(flag)[0] or flag.startswith("_") for flag in flags)


def read_command(
    command: StartCommand, target: str, facts: Facts, files: Files, types: Mapping[str, str]
) -> CommandReading:
    """The reading of the options; what they leave to the program or a checkpoint is unknown."""
    gathered = flags_of(command.items, types)
    elsewhere, unseen = taken_from_elsewhere(gathered.settings, command.script or None, gathered.unknown)
    reading = Reading(dialect="mlm", target=target, form="shell", settings=gathered.settings)
    unknown = {**facts.unknown, **elsewhere, **gathered.unknown}
    return CommandReading(reading, unknown, gathered.unseen or gathered.model or unseen)
