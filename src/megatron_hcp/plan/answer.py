"""One layout, judged: the rules that forbid it, its memory against the GPU's, and its time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from megatron_hcp.plan.constants import Rates
from megatron_hcp.plan.found import TIED, Candidate, Found, simplicity
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.legal import forbidden
from megatron_hcp.plan.memory import PlanMemory, memory, usable_gib
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.search import search
from megatron_hcp.plan.space import Fixed
from megatron_hcp.plan.time.margin import is_tied
from megatron_hcp.plan.time.step import StepTime, model_flops, step_time

UNTOLD = "cannot tell whether it fits under FSDP; counted whole"
"""Before the memory of what is open."""


@dataclass(frozen=True)
class Judged:
    """A layout with all that is known of it; memory and time are None where a rule forbids it."""

    layout: Layout
    rules: tuple[str, ...]
    memory: PlanMemory | None
    time: StepTime | None
    usable_gib: float
    tokens_per_s: float = 0.0
    """Per GPU."""
    tflops: float = 0.0
    """Of the model, per GPU."""
    tied: bool = False
    """Its time and that of the fastest of those shown differ by less than the model can tell."""

    counts_whole: bool = False
    """Its weights and gradients are shared by FSDP, and counted whole."""

    @property
    def is_open(self) -> bool:
        """Whether nothing tells if it fits: what is counted whole is more than there is."""
        return self.counts_whole and self.over_gib > 0

    @property
    def fits(self) -> bool:
        """Whether the peak is within what torch may allocate."""
        return self.memory is not None and self.memory.peak <= self.usable_gib

    @property
    def over_gib(self) -> float:
        """GiB beyond what torch may allocate, or 0."""
        return max(0.0, self.memory.peak - self.usable_gib) if self.memory else 0.0


class Planned(NamedTuple):
    """The answer of a search. The first of `best` is the one to take."""

    best: list[Judged]
    frontier: list[Candidate]
    found: Found


def judge(model: PlanModel, layout: Layout, job: PlanJob, rates: Rates) -> Judged:
    """That layout; never an error, whatever it asks for."""
    rules, usable = tuple(forbidden(model, layout, job)), usable_gib(job.gpu)
    if rules:
        return Judged(layout, rules, None, None, usable)
    held, time = memory(model, layout, job), step_time(model, layout, job, rates)
    tokens = job.global_batch * job.seq_length / job.world_size
    flops = tokens * model_flops(model, job.seq_length)
    return Judged(
        layout, rules, held, time, usable, tokens / time.seconds, flops / time.seconds / 1e12,
        counts_whole=job.shards_weights,
    )  # fmt: skip


def plan_job(model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed, few: int = 5) -> Planned:
    """The best few layouts: the simplest of those tied with the fastest, then the others by time."""
    found = search(model, job, rates, fixed, few)
    candidates = found.fitting or found.marked
    if not candidates:
        return Planned([], [], found)
    fastest = min(candidate.seconds for candidate in candidates)
    limit = fastest * (1 + TIED)
    tied = sorted((c for c in candidates if c.seconds <= limit), key=lambda c: simplicity(c.layout))
    rest = [c for c in candidates if c.seconds > limit]
    judged = [judge(model, candidate.layout, job, rates) for candidate in [*tied, *rest][:few]]
    return Planned(_with_ties(judged, rates, len(tied) > 1), found.frontier, found)


def _with_ties(judged: list[Judged], rates: Rates, has_others: bool) -> list[Judged]:
    """The layouts, told whether they are tied; `has_others`: with layouts that are not among them."""
    times = [item.time for item in judged]
    fastest = min((time for time in times if time), key=lambda time: time.seconds, default=None)
    if fastest is None:
        return judged
    ties = [time is not None and is_tied(rates, fastest.terms, time.terms, TIED) for time in times]
    return [replace(item, tied=tie and (has_others or sum(ties) > 1)) for item, tie in zip(judged, ties)]
