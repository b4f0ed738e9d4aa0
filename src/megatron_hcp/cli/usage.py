"""click's messages about unusable words, said as hcp says it: what was found, and what was wanted."""

from __future__ import annotations

import difflib
import re
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
        near = difflib.get_close_matches(bad["found"], names, n=1)
        return HcpError(f"found the command '{bad['found']}'", wanted=near[0] if near else f"one of {', '.join(names)}")
    return HcpError(error.format_message())


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
