"""What a search finds, and how layouts are told apart and put in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from megatron_hcp.plan.layout import Layout

TIED = 0.03
"""Layouts of one job whose times differ by less are tied whatever their terms, and the simplest of them is first."""


class Candidate(NamedTuple):
    """A layout with its step's seconds and its memory's peak."""

    seconds: float
    layout: Layout
    peak_gib: float


@dataclass
class Found:
    """What a search came to, each list by time.

    `best`: the fastest of each distinct set of axes. `frontier`: each needs less memory than all that are faster.
    `tight`: as best, of layouts that may not fit: their peak is as near to the end as it may be off.
    `marked`: as best, of layouts that no measurement covers. `legal`: how many layouts are. `least`: where none fits,
    the one of those looked at that needs the least memory.
    """

    best: list[Candidate] = field(default_factory=list)
    frontier: list[Candidate] = field(default_factory=list)
    tight: list[Candidate] = field(default_factory=list)
    marked: list[Candidate] = field(default_factory=list)
    legal: int = 0
    least: Candidate | None = None

    @property
    def fitting(self) -> list[Candidate]:
        """The best; where there are none, those that may not fit."""
        return self.best or self.tight


def distinct(layout: Layout) -> tuple[object, ...]:
    """What makes layouts different to a reader: levels, VP, micro-batch and recomputation are details of one."""
    return layout.tp, layout.cp, layout.cp_comm_type, layout.pp, layout.ep, layout.etp


def simplicity(layout: Layout) -> tuple[int, ...]:
    """Smaller is simpler: axes in use, levels of CP, recomputation, chunks; then the sizes."""
    axes = sum(size > 1 for size in (layout.tp, layout.cp, layout.pp, layout.vp, layout.etp))
    levels = layout.cp_comm_type == "a2a+p2p"
    return axes + levels + (layout.recompute != "none"), layout.tp * layout.cp * layout.pp, layout.vp, layout.ep
