"""Judges the start of a launch by upstream's own validators."""

from __future__ import annotations

from megatron_hcp.launch.fact import Launch
from megatron_hcp.validators.outcome import Judged
from megatron_hcp.validators.program import Program


def judge_start(launch: Launch, release: str, *, program: Program | None = None) -> Judged | None:
    """What upstream's start-up validators of a revision ("0.16.1", "main", "dev") make of the launch.

    `program` is that of a checkout (`checkout.program_of_folder`); without one, the package's tables are used. None if
    there is neither a program nor a table for the launch's dialect and release.
    """
    return None
