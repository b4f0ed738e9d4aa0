"""`hcp skills new`: a skill to fill in."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from hcp.cli.screen import say


@click.command()
@click.argument("name")
@click.option("--dir", "place", default=".", metavar="DIR", help="Where its folder is made (default: here).")
def new(name: str, place: str) -> None:
    """Write a new skill to fill in: SKILL.md, a card with a proof that fails, tasks of each kind with answers.

    hcp skills validate names each place that is left to fill in. Nothing that is there is overwritten.
    """
    from hcp.cards.scaffold import new_skill

    folder = new_skill(name, Path(place))
    shown = shlex.quote(str(folder))
    say(
        [
            f"{folder} written; next:",
            f"  hcp verify --trust {shown}    fails until scripts/proof.py proves the claim of config/card.yaml",
            f"  hcp skills validate {shown}    names the places to fill in",
            f"  hcp skills eval {shown}    grades the example answers of its tasks",
        ]
    )
