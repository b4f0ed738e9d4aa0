"""`hcp show`: a launch as hcp reads it. `hcp check --show` is the same."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from megatron_hcp.cli.options import format_option, launch_options
from megatron_hcp.cli.targets import split_targets
from megatron_hcp.launch.load import LoadOptions, load_launches


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]... [-- OVERRIDE...]")
@launch_options
@format_option("text", "json")
@click.option("--all", "every", is_flag=True, help="Include upstream's defaults.")
def show(targets: Sequence[str], options: LoadOptions, fmt: str, every: bool) -> None:
    """Print a launch as hcp reads it: its topology, then each fact with its value, origin and place.

    A TARGET is a launch, as for `hcp check`.
    """
    names, options = split_targets(targets, options)
    show_launches(names, options, fmt, every)


def show_launches(names: Sequence[str], options: LoadOptions, fmt: str, every: bool) -> None:
    """Prints each launch; the JSON always holds all facts."""
    from megatron_hcp.cli.reports.show import show_lines, topology

    launches = [launch for name in names for launch in load_launches(name, options)]
    if fmt == "json":
        from megatron_hcp.cli.reports.json import dump, show_json

        shown = [show_json(launch, topology(launch)) for launch in launches]
        sys.stdout.write(dump(shown[0] if len(shown) == 1 else {"schema": "hcp.show-many/2", "results": shown}) + "\n")
        return
    from megatron_hcp.cli.screen import say

    say(line for launch in launches for line in show_lines(launch, every))
