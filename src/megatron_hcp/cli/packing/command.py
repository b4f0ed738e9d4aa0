"""`hcp pack`: checks packed data before a launch trains on it, and plans how to pack."""

from __future__ import annotations

import click

from megatron_hcp.cli.packing.check import check
from megatron_hcp.cli.packing.plan import plan
from megatron_hcp.cli.usage import CommandGroup


@click.group(cls=CommandGroup)
def pack() -> None:
    """Packed data: check it against a launch, and plan how to pack."""


pack.add_command(check)
pack.add_command(plan)
