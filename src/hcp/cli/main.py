"""The `hcp` command: finds the subcommand, imports only that one, and turns faults into exit codes."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
from typing import Any

import click

from hcp import __version__
from hcp.core.errors import HcpError

COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("hcp.cli.check", "Tell what a launch will do wrong, before the cluster starts."),
    "dcp": ("hcp.cli.dcp", "Dynamic CP: plan groups per sequence, and weigh the loss."),
    "groups": ("hcp.cli.groups", "All rank groups by level, and which of them leave their node."),
    "explain": ("hcp.cli.explain", "Why a rule holds, what would be seen, and where upstream says it."),
    "verify": ("hcp.cli.verify", "Run the verification steps that the skills' cards list."),
    "anchors": ("hcp.cli.anchors", "Check the source anchors of rules and cards against upstream's sources."),
    "skills": ("hcp.cli.skills", "List, show, validate and install the skills of this pack."),
    "render": ("hcp.cli.render", "Write an sbatch script that checks itself before it trains."),
    "triage": ("hcp.cli.triage", "First failure of a dead job; whether CP is really on in a living one."),
    "facts": ("hcp.cli.facts", "What this machine or container has, as facts for `hcp check --facts`."),
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
    _collect_less()
    # click drops the `--` that separates a launch's own words from ours, so it is split off first.
    arguments = list(sys.argv[1:] if argv is None else argv)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    try:
        result = cli.main(arguments[:cut], prog_name="hcp", standalone_mode=False, obj=tuple(arguments[cut + 1 :]))
        sys.stdout.flush()
    except HcpError as error:
        _say(f"hcp: {error}")
        sys.exit(2)
    except click.exceptions.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2 and later: the help is its text
            _say(error.format_message())
            sys.exit(2)
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


def _collect_less() -> None:
    """Skips most garbage collections, while modules load and at exit: the process lives for 0.1 s."""
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


def _say(text: str) -> None:
    click.echo(text, err=True)
