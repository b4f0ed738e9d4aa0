"""`hcp facts`: what this machine or container has."""

from __future__ import annotations

import click

from megatron_hcp.cli.options import format_option
from megatron_hcp.cli.reports.json import dump, read_json
from megatron_hcp.cli.reports.words import reading_lines
from megatron_hcp.cli.screen import say
from megatron_hcp.launch.facts.last_read import last_read
from megatron_hcp.launch.this_machine import machine_facts


@click.command()
@format_option("json", "text")
def facts(fmt: str) -> None:
    """Print what this machine or container has, as facts for `hcp check --facts FILE`.

    Run it where the job runs, inside its container. Anything that cannot be determined is left out and stays unknown.
    After the facts it lists what hcp's rules were read from: the releases and branches of each upstream project.
    """
    found = machine_facts()
    if fmt == "text":
        say([*(f"{name}={value}" for name, value in found.items()), "", "read:", *reading_lines()])
        return
    data = {
        "schema": "hcp.facts/1",
        "facts": {name: {"value": value, "origin": "installed"} for name, value in found.items()},
        "read": [read_json(row) for row in last_read()],
    }
    click.echo(dump(data))
