"""What hcp does in its own way with click: the list of commands, their import, and messages about unusable words."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from megatron_hcp.cli.declare import PlainCommand
from megatron_hcp.ground.errors import HcpError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_BAD_VALUE = re.compile(r"(?P<found>.*?) is not (?:a valid|in the range|one of)", re.S)
_BAD_COMMAND = re.compile(r"No such command '(?P<found>.*?)'", re.S)


class CommandGroup(click.Group):
    """A group whose help shows the whole first sentence of each command; click cuts it off at 45 characters."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = {name: self.commands[name].get_short_help_str(limit=300) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(list(commands.items()))


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called. `listed`: (module, short help) by name."""

    listed: Mapping[str, tuple[str, str]]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.listed)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.listed.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry[0]), cmd_name)
        if isinstance(command, PlainCommand):
            command = command.of_click()
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        named = [
            CompletionItem(name, help=text) for name, (_, text) in self.listed.items() if name.startswith(incomplete)
        ]
        return named + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.listed.items()])


def usage_error(error: click.ClickException) -> HcpError:
    """An error of click as ours; click's own words where none of ours fit.

    click does not keep the value that it refuses, so it is taken from the start of its message.
    """
    if isinstance(error, click.BadParameter) and error.param is not None:
        wanted = _wanted(error.param.type)
        bad = _BAD_VALUE.match(error.message)
        if wanted and bad:
            found = bad["found"] if bad["found"].startswith(("'", '"')) else f"'{bad['found']}'"
            return HcpError(f"{_name(error.param)}: found {found}", wanted=wanted)
    bad = _BAD_COMMAND.match(error.format_message())
    context = getattr(error, "ctx", None)
    if bad and context is not None and isinstance(context.command, click.Group):
        names = context.command.list_commands(context)
        group = context.command_path.partition(" ")[2]
        near = [f"{group} {name}".strip() for name in difflib.get_close_matches(bad["found"], names, n=1)]
        found = "no command '" + f"{group} {bad['found']}".strip() + "'"
        return _unlike(found, near) if near else HcpError(found, wanted=f"one of {', '.join(names)}")
    if isinstance(error, click.NoSuchOption):
        return _unlike(f"no option '{error.option_name}'", error.possibilities or ())
    return HcpError(error.format_message())


def _unlike(found: str, near: Iterable[str]) -> HcpError:
    names = " or ".join(near)
    return HcpError(found, do=f"did you mean {names}?" if names else "--help lists them")


def _wanted(kind: click.ParamType[Any]) -> str | None:
    if isinstance(kind, click.Choice):
        return "one of " + ", ".join(map(str, kind.choices))
    if isinstance(kind, click.IntRange):
        bounds = (kind.min is not None) + 2 * (kind.max is not None)
        text = ("", " of at least {0}", " of at most {1}", " from {0} to {1}")[bounds]
        return "a whole number" + text.format(kind.min, kind.max)
    return "a whole number" if isinstance(kind, type(click.INT)) else None


def _name(param: click.Parameter) -> str:
    return param.opts[0] if isinstance(param, click.Option) else str(param.name)
