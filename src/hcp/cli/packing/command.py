"""`hcp pack`: looks into packed data before a launch trains on it, and plans how to pack."""

from __future__ import annotations

import click

from hcp.cli.options import CommandGroup
from hcp.cli.packing.check import check
from hcp.cli.packing.plan import plan


@click.group(cls=CommandGroup)
def pack() -> None:
    """Packed sequences: check the data against a launch, and plan how to pack it."""


pack.add_command(check)
pack.add_command(plan)
