"""`hcp skills new`: creates a skill to fill in."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from megatron_hcp.cli.screen import say


@click.command()
@click.argument("name")
@click.option("--dir", "place", default=".", metavar="DIR", help="Folder to create it in (default: the current one).")
def new(name: str, place: str) -> None:
    """Create a skill to fill in: SKILL.md, a card with a failing proof, and tasks of each kind with answers.

    hcp skills validate lists the places that are left to fill in. Existing files are never overwritten.
    """
    from megatron_hcp.skills.scaffold import new_skill

    folder = new_skill(name, Path(place))
    shown = shlex.quote(str(folder))
    say(
        [
            f"{folder} written; next:",
            f"  hcp verify --trust {shown}    fails until scripts/proof.py proves the claim in config/card.yaml",
            f"  hcp skills validate {shown}    lists the places to fill in",
            f"  hcp skills eval {shown}    grades the example answers to its tasks",
        ]
    )
