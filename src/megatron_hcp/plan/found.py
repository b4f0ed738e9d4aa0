"""What a search finds, and how layouts are told apart and put in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.memory import is_tight, usable_gib
from megatron_hcp.plan.memory.peak import checked_peak
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.time.step import uncovered

WINDOW = 1.15
"""Layouts within this factor of the best are found; slower ones are not worth a picture."""
CHECKS_AFTER = 60
"""Memory of so many layouts more is computed once the best is known, for the others and the frontier."""
MOST_CHECKS = 4000
SMALLEST_STEP_GIB = 1.0
"""By how much less memory a slower layout must need to be on the frontier."""

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


class Picked:
    """Takes layouts by time, computes their memory, and keeps what a reader wants to see.

    Whatever is tied with the fastest is kept, so that which of them is the simplest does not depend on `few`.
    `first`: the fastest is enough.
    """

    def __init__(self, model: PlanModel, job: PlanJob, found: Found, few: int, first: bool = False) -> None:
        self.model, self.job, self.found, self.few, self.first = model, job, found, few, first
        self.usable = usable_gib(job.gpu)
        self.lightest: Candidate | None = None
        """Of those that do not fit, the one that needs the least memory."""
        self.limit = self._tied = float("inf")
        self._checks, self._after = 0, CHECKS_AFTER
        self._keys: set[tuple[object, ...]] = set()
        self._least = float("inf")

    @property
    def is_done(self) -> bool:
        if self.first and (self.found.best or self.found.marked):
            return True
        return self._checks >= MOST_CHECKS or self._after <= 0

    def take(self, seconds: float, layout: Layout) -> None:
        """The next layout by time."""
        if seconds > self.limit:
            self._after = 0
            return
        found = self.found
        key = distinct(layout)
        wanted = len(found.best) < self.few or seconds <= self._tied
        if not wanted and self._least < SMALLEST_STEP_GIB:
            self._after = 0
            return
        self._checks += 1
        model, job, usable = self.model, self.job, self.usable
        peak = checked_peak(model, layout, job, usable)
        if peak > usable:
            if self.lightest is None or peak < self.lightest.peak_gib:
                self.lightest = Candidate(seconds, layout, peak)
            return
        candidate = Candidate(seconds, layout, peak)
        if uncovered(model, layout):
            self._keep(found.marked, candidate, key)
            return
        if is_tight(peak, job.gpu):
            self._keep(found.tight, candidate, key)
            return
        if not found.best:
            self.limit, self._tied = seconds * WINDOW, seconds * (1 + TIED)
        else:
            self._after -= 1
        if key not in self._keys and wanted:
            found.best.append(candidate)
            self._keys.add(key)
        if peak < self._least - SMALLEST_STEP_GIB:
            found.frontier.append(candidate)
            self._least = peak

    def _keep(self, kept: list[Candidate], candidate: Candidate, key: tuple[object, ...]) -> None:
        """Keeps the fastest few of those that are not ranked, each set of axes once."""
        if len(kept) < self.few and all(distinct(other.layout) != key for other in kept):
            kept.append(candidate)
