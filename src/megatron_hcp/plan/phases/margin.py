"""What a counted peak says of a step: that it fits, that it does not, or that it is tight, within the count's margin.

The margin is what reported runs show (`python lab plan/phases`): of those that ran out of memory though the count is
below the limit, the lowest fullest phase had 78 % of it at first (NeMo-RL's gpt-oss-120b on 64 H100), and has 80 % by
now (miles' Qwen3.5-35B on 8); the one that finished though the count is above has 103 % (verl's Qwen2.5-7B, two of the
longest sequences in a micro-batch). What is missing below the limit nobody names: all these runs share their GPUs with
an engine. Outside of it are adapters of experts (57 %), which are tight by that (`misses`), and one engine that has too
few blocks for its sequences (73 %).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.phases.change import changes_of
from megatron_hcp.plan.phases.job import RlJob
from megatron_hcp.plan.phases.memory import Phase, phases_of

FITS, TIGHT, FAILS = "fits", "tight", "does not fit"
BELOW, ABOVE = 0.23, 0.03
"""Shares of what may be allocated, by which a run was found to need more, and less, than is counted."""


class Room(NamedTuple):
    """The phase that leaves the least, the GiB that it leaves (negative: beyond the limit), and the one setting that
    brings every phase below the margin, as the launch writes it; "" if none does."""

    phase: Phase
    spare_gib: float
    setting: str


def answer(phase: Phase) -> str | None:
    """`FITS`, `TIGHT` or `FAILS`; None where FSDP leaves it open."""
    if phase.is_open:
        return None
    share = phase.peak / phase.usable if not phase.lacks else math.inf
    return FITS if share <= 1 - BELOW and not phase.misses else TIGHT if share <= 1 + ABOVE else FAILS


def answer_of(phases: Sequence[Phase]) -> str | None:
    """The answer for a step: that of its worst phase."""
    found = [answer(phase) for phase in phases]
    return None if None in found else next((said for said in (FAILS, TIGHT) if said in found), FITS)


def room_of(
    model: PlanModel, layout: Layout, job: PlanJob, rl: RlJob, phases: Sequence[Phase]
) -> Room | None:  # fmt: skip
    """How much a tight step leaves, and what makes room; None where a step is not tight."""
    if answer_of(phases) != TIGHT:
        return None
    undecided = (phase for phase in phases if answer(phase) == TIGHT)
    fullest = max(undecided, key=lambda phase: phase.peak / phase.usable)
    wanted = fullest._replace(usable=fullest.usable * (1 - BELOW))
    fitting = (
        change.setting
        for change in changes_of(layout, job, rl, wanted)
        if answer_of(phases_of(model, change.layout, change.job, change.rl)) == FITS
    )
    return Room(fullest, fullest.usable - fullest.peak, next(fitting, ""))
