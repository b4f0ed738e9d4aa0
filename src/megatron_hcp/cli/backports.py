"""`hcp backports`: the fixes upstream made after a launch's releases, as far as they touch what it turns on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from megatron_hcp.cli.options import format_option, launch_options
from megatron_hcp.cli.targets import split_targets
from megatron_hcp.launch.load import LoadOptions, load_launches

if TYPE_CHECKING:
    from megatron_hcp.launch.fact import Launch

SCHEMA = "hcp.backports/1"


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]... [-- OVERRIDE...]")
@launch_options
@format_option("text", "json")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Also list the fixes to parts that most launches turn on, or that this one doesn't show.",
)
def backports(targets: Sequence[str], options: LoadOptions, fmt: str, every: bool) -> None:
    """List the fixes upstream made after the launch's releases that touch what the launch turns on.

    A TARGET is a launch, as for `hcp check`; state its releases with --assume. Each fix is a commit on upstream's main
    branch; a release lacks it if it still has the lines that the commit replaced. Its title says what it is about, so a
    fix that is listed may still not concern the launch. The fixes that name most of what the launch does, and
    options that it sets, come first.

    \b
    hcp backports train.sbatch --assume mcore=0.16.1 te=2.14
    hcp backports -- --context-parallel-size 4 --num-experts 8

    Exit codes: 0 listed, 2 the input could not be used, 3 internal error.
    """
    from megatron_hcp.backports.lacking import lacking

    names, options = split_targets(targets, options)
    launches = [launch for name in names for launch in load_launches(name, options)]
    if fmt == "json":
        from megatron_hcp.cli.reports.json import dump

        sys.stdout.write(dump({"schema": SCHEMA, "results": [_result(launch) for launch in launches]}) + "\n")
        return
    from megatron_hcp.cli.reports.backports import backports_lines
    from megatron_hcp.cli.screen import say

    say(line for launch in launches for line in backports_lines(launch, lacking(launch), every))


def _result(launch: Launch) -> dict[str, Any]:
    from megatron_hcp.backports.lacking import lacking
    from megatron_hcp.cli.reports.backports import release_json
    from megatron_hcp.cli.reports.json import target_json

    found = lacking(launch)
    return {
        "target": target_json(launch),
        "releases": [release_json(item) for item in found.lacking],
        "not_read": [{"package": package, "reason": reason} for package, reason in found.not_read],
        "not_stated": list(found.not_stated),
    }
