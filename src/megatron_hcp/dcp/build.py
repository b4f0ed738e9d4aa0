"""Builds one plan from a height, a number of micro-batches, and how to fill."""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.dcp.cover import settle
from megatron_hcp.dcp.fill import fill, fill_tightly
from megatron_hcp.dcp.levels import cut, groups_apart, groups_joined
from megatron_hcp.dcp.workload import Pack, Packs, Workload


class BuildOptions(NamedTuple):
    """The parameters of a plan."""

    height: float
    """The maximum height of a group with one long sequence, if a wider group exists."""
    num_micro_batches: int
    joined: bool
    """Whether several long sequences may share a group."""
    widest: int
    """Groups up to this size index accept short sequences."""
    bias: float = 1.0
    """Single ranks come before groups that are lower than this fraction of their mean height."""
    tight: bool = False
    """Whether short sequences are packed to save room rather than to balance work."""


def build(workload: Workload, options: BuildOptions) -> list[Packs] | None:
    """The plan for these options, or None if the sequences don't fit."""
    groups, singles = (groups_joined if options.joined else groups_apart)(workload, options.height)
    used = sum([len(alike) * width for alike, width in zip(groups, workload.sizes)])
    ranks = options.num_micro_batches * workload.world_size - used
    if ranks < 0:
        return None
    work = workload.work
    left, tall = sum([work[i] for i in singles]), 0
    # A single sequence with more work than its share of the single ranks gets its own rank, and its own position.
    while tall < min(len(singles), ranks - 1) and work[singles[tall]] * (ranks - tall) > left:
        left -= work[singles[tall]]
        tall += 1
    left = max(0.0, left)  # nothing, if rounding leaves less than that
    groups[0] = [workload.group(0, [i]) for i in reversed(singles[:tall])]
    ranks -= tall
    levels = cut(workload, groups, ranks, options.bias * left / ranks if ranks else 0.0)
    rest = singles[tall:]
    if not (fill_tightly(workload, levels, rest) if options.tight else fill(workload, levels, rest, options.widest)):
        return None
    plan = [batch for batch, _ in levels if batch]
    if workload.attention:  # how much a group's sequences hide together is known only now
        for batch in plan:
            for group in batch:
                if workload.sends(group.size):
                    group.height = workload.height(group.size, group.items)
    _swap_alike(plan)
    return [settled for batch in plan for settled in settle(workload, batch)]


class PlanCost(NamedTuple):
    """The time of all ranks from start to end, idle or not, plus the price of spreading sequences wider than needed."""

    time: float
    price: float

    @property
    def total(self) -> float:
        return self.time + self.price


def plan_cost(workload: Workload, plan: list[Packs]) -> PlanCost:
    """The cost of a plan.

    A pipeline adds its bubble, (pp - 1) / vpp times the slowest micro-batch: stages wait while it fills and drains.
    """
    cost, setup = workload.setup.cost, workload.setup
    tallest = [max([group.height for group in batch]) for batch in plan]
    time = sum(tallest) + (setup.pp - 1) / setup.vpp * max(tallest)
    if cost.by_time:
        time += (
            cost.machine.micro_batch_s / cost.machine.unit_s * workload.slot * (len(plan) + (setup.pp - 1) / setup.vpp)
        )
    price = sum([workload.price(group.size, i) for batch in plan for group in batch if group.size for i in group.items])
    return PlanCost(time * workload.world_size, price)


def _swap_alike(plan: list[Packs]) -> None:
    """Swaps groups of the same size so that tall ones share a micro-batch: none gets longer, some get shorter."""
    plan.sort(key=lambda batch: max([group.height for group in batch]), reverse=True)
    alike: dict[int, list[Pack]] = {}
    for batch in plan:
        for group in batch:
            alike.setdefault(group.size, []).append(group)
    for groups in alike.values():
        groups.sort(key=lambda group: group.height)
    for batch in plan:
        batch[:] = [alike[group.size].pop() for group in batch]
