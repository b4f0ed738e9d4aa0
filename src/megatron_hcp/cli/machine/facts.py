"""`hcp facts`: what this machine or container has."""

from __future__ import annotations

from collections.abc import Iterator

import click

from megatron_hcp.cli.options import format_option
from megatron_hcp.cli.reports.json import dump, read_json
from megatron_hcp.cli.reports.words import reading_lines
from megatron_hcp.cli.screen import say
from megatron_hcp.launch.dialects.table import FACTS, SHOWN_ROLE, keys_of
from megatron_hcp.launch.fact import DIALECTS
from megatron_hcp.launch.facts.last_read import last_read
from megatron_hcp.launch.this_machine import machine_facts


@click.command()
@format_option("json", "text")
@click.option(
    "--names",
    "dialect",
    type=click.Choice(("all", *DIALECTS)),
    help="Instead: list the names of all facts, as --assume and .hcp.yaml state them, with their keys in this dialect.",
)
def facts(fmt: str, dialect: str | None) -> None:
    """Print what this machine or container has, as facts for `hcp check --facts FILE`.

    Run it where the job runs, inside its container. Anything that cannot be determined is left out and stays unknown.
    After the facts it lists what hcp's rules were read from: the releases and branches of each upstream project.
    """
    if dialect is not None:
        say(_name_lines(dialect))
        return
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


def _name_lines(dialect: str) -> Iterator[str]:
    """A line for each fact: name, type, meaning; of one dialect, those that it has keys for, with the first."""
    for spec in FACTS.values():
        keys = keys_of(spec, dialect, SHOWN_ROLE.get(dialect, "")) if dialect != "all" else ()
        if keys or dialect == "all":
            yield f"{spec.name:<36} {spec.type:<8} {spec.doc}{f' ({keys[0]})' if keys else ''}"
    yield f"{'env.NAME':<36} {'str':<8} an environment variable of the job"
    yield f"{'sbatch.NAME, srun.NAME':<36} {'str':<8} an option of sbatch or srun, as sbatch.time"
