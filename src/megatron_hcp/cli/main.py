"""The `hcp` command: finds the subcommand, imports only that one, and turns errors into exit codes."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from megatron_hcp import __version__
from megatron_hcp.cli.declare import PlainCommand
from megatron_hcp.cli.screen import say
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.signals import ends_cleanly

if TYPE_CHECKING:
    import click

COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("megatron_hcp.cli.check", "Find what will go wrong in a launch before it reaches the cluster."),
    "init": ("megatron_hcp.cli.repository.init", "Write a first .hcp.yaml: what holds for a repository's launches."),
    "show": ("megatron_hcp.cli.show", "Print a launch as hcp reads it: its topology, and each fact with its origin."),
    "plan": (
        "megatron_hcp.cli.plan",
        "From a model, a cluster and a sequence length to a parallel layout, with reasons.",
    ),
    "dcp": ("megatron_hcp.cli.dcp.command", "Dynamic CP: plan groups per sequence, and weight the loss."),
    "support": (
        "megatron_hcp.cli.support",
        "Show which kinds of CP a model supports on given versions, and why not the rest.",
    ),
    "pack": ("megatron_hcp.cli.packing.command", "Packed data: check it against a launch, and plan how to pack."),
    "groups": ("megatron_hcp.cli.groups", "List all rank groups by level, and show which of them cross nodes."),
    "explain": (
        "megatron_hcp.cli.explain.command",
        "Explain a rule, or an option of upstream's.",
    ),
    "backports": ("megatron_hcp.cli.backports", "List the fixes upstream made after the launch's releases."),
    "verify": ("megatron_hcp.cli.verify.command", "Run the verification steps that the skills' cards list."),
    "dryrun": (
        "megatron_hcp.cli.dryrun.command",
        "Run upstream's own program on a launch, without a GPU: executes the code that --upstream names.",
    ),
    "anchors": ("megatron_hcp.cli.anchors", "Check the source anchors of rules and cards against upstream's sources."),
    "skills": ("megatron_hcp.cli.skills.command", "List, show, validate and install the skills of this pack."),
    "render": ("megatron_hcp.cli.render", "Write an sbatch script that checks itself before it trains."),
    "job": ("megatron_hcp.cli.job", "Run a rendered job from the inside, as its script does on every node."),
    "triage": (
        "megatron_hcp.cli.triage",
        "Find the first failure of a dead job, or whether CP is active in a running one.",
    ),
    "mcp": (
        "megatron_hcp.mcp.command",
        "Serve check, plan, support, render, dcp, triage and explain to an agent over MCP.",
    ),
    "lsp": ("megatron_hcp.lsp.command", "Serve an editor: findings as you type, explanations, fixes and keys."),
    "facts": ("megatron_hcp.cli.machine.facts", "Print what this machine or container has, for `hcp check --facts`."),
    "doctor": ("megatron_hcp.cli.machine.doctor", "Say what this machine and environment can do, and what is broken."),
    "completion": ("megatron_hcp.cli.completion", "Print the completion script for bash, zsh or fish."),
}
"""PlainCommand -> (module that holds it under the same name, short help). Listed, so that `hcp --help` imports none."""


cli: click.Group
"""click's commands; it is made on first access: see `__getattr__`."""


@cache
def _cli() -> click.Group:
    """The command line as click's, for all that `_at_once` leaves to it."""
    import click

    from megatron_hcp.cli.usage import LazyGroup

    @click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
    @click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version,
                  help="Show the version, and what was read of upstream, and exit.")  # fmt: skip
    def cli() -> None:
        """Check long-context launches on the Megatron stack: context parallelism, hierarchical and dynamic.

        Exit codes: 0 ok, 1 errors found, 2 the input could not be used, 3 internal error (a bug in hcp), 4 undecided:
        settings of the launch could not be seen.
        """

    assert isinstance(cli, LazyGroup)
    cli.listed = COMMANDS
    return cli


def __getattr__(name: str) -> object:
    # The module's own attributes are found before this is called.
    if name == "cli":
        return _cli()
    raise AttributeError(name)


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Prints the version, then what was read of each upstream project."""
    if not value or ctx.resilient_parsing:
        return
    from megatron_hcp.cli.reports.words import reading_lines

    say([f"hcp, version {__version__}", *reading_lines()])
    ctx.exit()


def main(argv: list[str] | None = None) -> Any:
    """Runs the command line and exits: 0 ok, 1 findings, 2 unusable input, 3 a bug in hcp, 4 undecided.

    Without `argv`, the process belongs to the command, and its streams and signals are set up too.
    """
    atexit.register(gc.freeze)  # the last collection, at exit, is skipped too
    if argv is None:
        from megatron_hcp.cli.streams import guard_streams, is_output_lost

        guard_streams(sys.argv[1:])
        gc.set_threshold(100_000, 20, 20)  # a check makes few cycles: looking for them took a tenth of its time
    # click drops the `--` that separates a launch's own words from ours, so it is split off first.
    arguments = list(sys.argv[1:] if argv is None else argv)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    with ends_cleanly() if argv is None else nullcontext():
        code = _run(arguments[:cut], tuple(arguments[cut + 1 :]))
    if argv is None and is_output_lost():
        code = 2  # a script that keeps the output has half of it
    sys.exit(code)


def _run(arguments: list[str], words: tuple[str, ...]) -> int:
    """The exit code of the command."""
    try:
        result = _at_once(arguments, words)
        if result is None:
            result = _by_click(arguments, words)
    except HcpError as error:
        return _unusable(error, arguments)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        return 0  # a program that called `main` has its own stream, and its reader is gone
    except Exception:
        import traceback

        say(traceback.format_exc().splitlines(), err=True)
        say(
            [f"hcp {__version__}: this is a bug in hcp, not in your input; please report it with the lines above"],
            err=True,
        )
        return 3
    return result if isinstance(result, int) else 0


def _at_once(arguments: list[str], words: tuple[str, ...]) -> Any:
    """The result of a command that `declare` can read; None if click must read it."""
    name = arguments[0] if arguments else ""
    if name not in COMMANDS or "_HCP_COMPLETE" in os.environ:
        return None
    command = getattr(importlib.import_module(COMMANDS[name][0]), name)
    given = command.given(arguments[1:]) if isinstance(command, PlainCommand) else None
    return None if given is None else command.function(**given, after=words)


def _by_click(arguments: list[str], words: tuple[str, ...]) -> Any:
    """The result of a command that click reads; of words that it refuses, the exit code."""
    import click

    if "_HCP_COMPLETE" in os.environ:
        importlib.import_module("megatron_hcp.cli.completion")  # a shell asks for completions: load our classes
    try:
        return _cli().main(arguments, prog_name="hcp", standalone_mode=False, obj=words)
    except click.exceptions.Abort:
        return 128 + signal.SIGINT
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2 and later: the message is the help
            say(error.format_message().splitlines(), err=True)
            return 2
        from megatron_hcp.cli.usage import usage_error

        return _unusable(usage_error(error), arguments)


def _unusable(error: HcpError, arguments: Sequence[str]) -> int:
    if _wants_json(arguments):
        from megatron_hcp.cli.reports.json import dump
        from megatron_hcp.ground.errors import error_json

        sys.stdout.write(dump(error_json(error)) + "\n")
        sys.stdout.flush()
    say([f"hcp: {error}"], err=True)
    return 2


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether the last `--format` asks for JSON; the arguments may not be parsed, as one of them may be unknown."""
    wanted = False
    for word, following in zip(arguments, (*arguments[1:], "")):
        if word == "--format" or word.startswith("--format="):
            wanted = (word.partition("=")[2] or following) == "json"
    return wanted
