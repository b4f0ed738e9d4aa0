"""click's messages about unusable words, said as hcp says it: what was found, and what was wanted."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

import click

from megatron_hcp.ground.errors import HcpError

_BAD_VALUE = re.compile(r"(?P<found>.*?) is not (?:a valid|in the range|one of)", re.S)
_BAD_COMMAND = re.compile(r"No such command '(?P<found>.*?)'", re.S)


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
