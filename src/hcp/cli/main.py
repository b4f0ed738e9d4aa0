"""The `hcp` command: finds the subcommand, imports only that one, and turns faults into exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from hcp import __version__
from hcp.core.errors import HcpError

COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("hcp.cli.check", "Tell what a launch will do wrong, before the cluster starts."),
}
"""Command -> (module that holds it under the same name, short help). Listed, so that `hcp --help` imports none."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry[0]), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="hcp")
def cli() -> None:
    """Check long-context launches on the Megatron stack: context parallelism, hierarchical and dynamic.

    Exit codes: 0 fine, 1 an error was found, 2 the input could not be used, 3 a fault of hcp.
    """


def main(argv: list[str] | None = None) -> Any:
    """Runs the command line and exits: 0 fine, 1 findings, 2 unusable input, 3 our fault."""
    try:
        result = cli.main(argv, prog_name="hcp", standalone_mode=False)
        sys.stdout.flush()
    except HcpError as error:
        _say(f"hcp: {error}")
        sys.exit(2)
    except click.exceptions.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except click.ClickException as error:
        _say(f"hcp: {' '.join(error.format_message().split())}")
        sys.exit(2)
    except BrokenPipeError:
        # The reader has gone (`hcp … | head`): end quietly, also at interpreter shutdown.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
    except Exception:
        import traceback

        traceback.print_exc()
        _say(f"hcp {__version__}: this is a fault of hcp, not of the input; please report it with the lines above")
        sys.exit(3)
    sys.exit(result if isinstance(result, int) else 0)


def _say(text: str) -> None:
    click.echo(text, err=True)
