"""Which framework a command of a script starts, told by its program, its options and its keys."""

from __future__ import annotations

from megatron_hcp.bash.value import Unseen
from megatron_hcp.launch.dialects.foreign import of_keys, of_options, of_program
from megatron_hcp.launch.dialects.framework import StartCommand
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.mlm.command import OWN, TRAINS
from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.dialects.which import can_be, dialect_of_keys
from megatron_hcp.launch.fact import Dialect
from megatron_hcp.launch.forms.script.facts import is_parallel
from megatron_hcp.launch.forms.script.flags import flag_names
from megatron_hcp.launch.forms.script.started import Launched


def command_of(launched: Launched) -> StartCommand:
    """The command, with what its words may set."""
    names = flag_names(launched.started.arguments)
    by_keys = dialect_of_keys([name for name in names if not name.startswith("--")])
    return StartCommand(launched, names, by_keys, index_of("mlm"))


def started_by(command: StartCommand) -> Dialect | None:
    """The framework whose own program a command is; None for any other, and if Megatron doesn't train."""
    return next((one.name for one in FRAMEWORKS.values() if one.starts(command)), None)


def dialect_of(command: StartCommand) -> Dialect | None:
    """The dialect of any other command; None if it isn't a training command that can be read."""
    for framework in FRAMEWORKS.values():
        answer = framework.may_start(command)
        if answer is not None:
            return framework.name if answer else None
    return None


def foreign_name(command: StartCommand) -> str | None:
    """The framework that a command belongs to, by its program, its options or its keys, if it isn't read."""
    return (
        next(filter(None, (one.refuses(command) for one in FRAMEWORKS.values())), None)
        or of_program(command.script)
        or of_options(command.flags)
        or of_keys(set(command.keys))
    )


def may_be(forced: Dialect, told: Dialect | None, command: StartCommand) -> bool:
    """Whether a command can be in the forced dialect: it names an option or key of it, or nothing that can be read.

    A custom program may use Megatron-LM's names for a few options and still be a Bridge launch.
    """
    if told is not None and FRAMEWORKS[told].settles(command):
        return False
    trains = not command.script or TRAINS.search(command.script) is not None
    if not command.names:
        return trains and any(isinstance(item, Unseen) for item in command.items)
    if FRAMEWORKS[forced].is_command_line:
        own = forced == "mlm" and len(command.flags & set(command.megatrons)) > 2
        return own or OWN.search(command.script) is not None
    if forced != "verl" and trains and is_parallel(set(command.names)):
        return True
    return can_be(forced, [name for name in command.names if not name.startswith("-")])
