"""Policy "balanced": builds plans for several heights and numbers of micro-batches, and keeps the cheapest."""

from __future__ import annotations

import itertools
from math import inf

from megatron_hcp.dcp.build import BuildOptions, build, plan_cost
from megatron_hcp.dcp.cover import whole_groups
from megatron_hcp.dcp.fill import ranks_for
from megatron_hcp.dcp.levels import group_sizes, groups_joined
from megatron_hcp.dcp.starts import published_plans
from megatron_hcp.dcp.workload import Packs, Workload, part

FEW, MANY = 8, 16
"""Sequences per rank: below FEW, long sequences may share a group, and more is tried; from MANY on, short ones fill the
gaps of groups of up to four ranks, not two: worth about its price, and the load is better balanced."""
MORE_MICRO_BATCHES, MORE_IF_FEW = 1.35, 1.5
"""A plan's maximum number of micro-batches, as a multiple of those the tokens need (or one more, if larger)."""
TIE = 0.05
"""The price of doubling the micro-batches, as a fraction of the plan: small, so that it only breaks near ties."""
WORK, VISITS_PER_MICRO_BATCH = 60_000, 4
"""The approximate number of sequences, ranks and micro-batches that a search visits; the latter count several times."""
MIN_BUILDS, MAX_BUILDS = 3, 120
CLIMBS, FIRST_STEP, LAST_STEP = 4, 2.0, 1.01
"""How many starts a climb is tried from, and the factors by which it changes the height."""
SCAN = 1.15
"""The factor between starting heights."""
BIASES = (1.0, 0.8)
REFINED, REFINING_BUILDS, WASTE, LESS, SPARED = 6, 40, 0.01, 0.9999, 0.002
"""How many micro-batches are replanned, with how many builds each; the fraction of the plan's cost that they must
waste; the fraction below which the cost must fall; and the fraction by which groups may get wider."""


def cheap_plans(workload: Workload) -> list[list[Packs]]:
    """The lowest-cost plan among those tried, then others; deterministic for a given workload.

    Where time alone counts, the first is no slower than any other: the price of wide groups only breaks ties.
    """
    plans = [_found(workload, MAX_BUILDS)]
    others = published_plans(workload)
    if workload.setup.pp > 1:  # the bubble may lead the climb away from a plan that is best including it
        without = workload._replace(setup=workload.setup._replace(pp=1, vpp=1))
        others = itertools.chain(cheap_plans(without)[:1], others)
    for plan in others:
        better = _is_fair(workload, plan, plans[0]) and _total(workload, plan) < _total(workload, plans[0])
        plans.insert(0 if better else len(plans), plan)
    found = [_refined(workload, plans[0]), *plans[1:]]
    return sorted(found, key=lambda plan: plan_cost(workload, plan).time) if workload.setup.cost.by_time else found


def _is_fair(workload: Workload, plan: list[Packs], other: list[Packs]) -> bool:
    """Whether neither time nor token-weighted group width increases, unless only time counts.

    The search balances the two for the whole plan; what replaces its result is no worse in either.
    """
    if workload.setup.cost.by_time:
        return True
    wide, most = _spread(workload, plan), _spread(workload, other)
    return plan_cost(workload, plan).time <= plan_cost(workload, other).time and wide <= most * (1 + SPARED)


def _spread(workload: Workload, plan: list[Packs]) -> int:
    """Ranks of each sequence's group times its tokens."""
    groups = [group for batch in plan for group in batch]
    return sum([workload.sizes[group.size] * sum([workload.length[i] for i in group.items]) for group in groups])


def _found(workload: Workload, most_builds: int) -> list[Packs]:
    search = _Search(workload, most_builds)
    search.run()
    if search.best is None:
        return whole_groups(workload, list(range(len(workload.length))))
    return search.best[1]


def _refined(workload: Workload, plan: list[Packs]) -> list[Packs]:
    """Replans the micro-batches that waste the most, singly and in pairs, as long as that helps.

    One height governs a whole plan, so sequences of equal length all get the same size; here they need not. The
    search's balance of even load and price is kept (see `_is_fair`).
    """
    least = plan_cost(workload, plan).total
    builds = WORK - 2 * (len(workload.length) + workload.world_size)  # none if a single plan is already a lot of work
    tried: set[tuple[int, ...]] = set()
    while builds > 0:
        wasted = [_waste(workload, batch) for batch in plan]
        worst = sorted(range(len(plan)), key=lambda number: -wasted[number])[:REFINED]
        choices = [(number,) for number in worst] + list(itertools.combinations(worst, 2))
        for numbers in choices:
            positions = sorted(i for number in numbers for group in plan[number] for i in group.items)
            if sum([wasted[number] for number in numbers]) < WASTE * least or tuple(positions) in tried:
                continue
            tried.add(tuple(positions))
            again = _found(part(workload, positions), REFINING_BUILDS)
            builds -= REFINING_BUILDS * (len(positions) + len(numbers) * workload.world_size)
            for batch in again:
                for group in batch:
                    group.items = [positions[i] for i in group.items]
            changed = [batch for number, batch in enumerate(plan) if number not in numbers] + again
            cost = plan_cost(workload, changed).total
            if cost < least * LESS and _is_fair(workload, changed, plan):
                plan, least = changed, cost
                break
            if builds <= 0:
                return plan
        else:
            return plan
    return plan


def _waste(workload: Workload, batch: Packs) -> float:
    """Time that ranks wait for the tallest group, and the price of wide groups."""
    tallest = max([group.height for group in batch])
    idle = sum([(tallest - group.height) * workload.sizes[group.size] for group in batch])
    return idle + sum([workload.price(group.size, i) for group in batch if group.size for i in group.items])


class _Search:
    """Hill climbing over `BuildOptions`, from starts spread over the sensible range; builds are counted, not timed."""

    def __init__(self, workload: Workload, most_builds: int) -> None:
        self.workload = workload
        self.best: tuple[float, list[Packs]] | None = None
        self.costs: dict[BuildOptions, float] = {}
        count = len(workload.length)
        self.few = count < FEW * workload.world_size
        # At this height every sequence has the smallest group that holds it; above it nothing changes.
        if workload.attention:
            self.natural = max([workload.time(size, i) for i, size in enumerate(workload.need)])
        else:
            self.natural = max([work / workload.sizes[size] for work, size in zip(workload.work, workload.need)])
        need = workload.min_micro_batches
        self.limit = max(need + 1, int((MORE_IF_FEW if self.few else MORE_MICRO_BATCHES) * need))
        visits = count + workload.world_size + VISITS_PER_MICRO_BATCH * self.limit
        self.builds = max(MIN_BUILDS, min(most_builds, WORK // visits))

    def run(self) -> None:
        starts = sorted(self.starts(), key=self.cost)
        for number in (self.workload.min_micro_batches, self.workload.min_micro_batches + 1):
            options = BuildOptions(self.natural, number, False, 0)
            if self.costs.get(options._replace(widest=starts[0].widest), inf) == inf:
                self.cost(options._replace(tight=True))
        for start in starts[:CLIMBS]:
            self.climb(start)
        if not any(cost < inf and options.height == self.natural for options, cost in self.costs.items()):
            self.exceed_limit()

    def exceed_limit(self) -> None:
        """Starts with the number of micro-batches needed by sequences that share ranks badly."""
        ranges, singles = group_sizes(self.workload, self.natural)
        used = sum([len(part) * width for parts, width in zip(ranges, self.workload.sizes) for part in parts])
        least = (used + ranks_for(self.workload, list(singles))) // self.workload.world_size
        self.builds += 2 * MIN_BUILDS
        for number in range(max(self.limit + 1, least), max(self.limit + 1, least) + MIN_BUILDS):
            options = BuildOptions(self.natural, number, False, 0, tight=True)
            self.cost(options._replace(tight=False))
            if self.cost(options) < inf:
                break

    def starts(self) -> list[BuildOptions]:
        many = len(self.workload.length) >= MANY * self.workload.world_size
        widest = min(2 if many else 1, len(self.workload.sizes) - 1)
        joins = (False, True) if self.few else (False,)
        starts = [BuildOptions(self.natural, number, joined, widest) for number in self.numbers() for joined in joins]
        for options in tuple(starts):
            height = self.lowest(options.num_micro_batches, options.joined)
            while height < self.natural * 0.999:
                starts.append(options._replace(height=height))
                height *= SCAN if self.few else inf
        return starts

    def numbers(self) -> list[int]:
        """Numbers of micro-batches worth trying, largest first."""
        least = self.workload.min_micro_batches
        if not self.few:
            natural = int(_ranks_needed(self.workload, self.natural, False, inf) / self.workload.world_size)
            least = max(least, min(self.limit, natural))
        span = self.limit - least
        steps = max(1, min(span, max(2, self.builds // 8)))
        return sorted({least + round(span * step / steps) for step in range(steps + 1)}, reverse=True)

    def lowest(self, number: int, joined: bool) -> float:
        """The approximate minimum height at which the groups fit into this many micro-batches."""
        ranks = number * self.workload.world_size
        low, high = self.workload.work[0] / self.workload.world_size / 2, self.natural
        for _ in range(8 if joined else 14):
            middle = (low * high) ** 0.5
            if _ranks_needed(self.workload, middle, joined, middle) <= ranks:
                high = middle
            else:
                low = middle
        return high

    def climb(self, here: BuildOptions) -> None:
        step = FIRST_STEP
        while step > LAST_STEP and len(self.costs) < self.builds:
            best = min(self.around(here, step), key=self.cost)
            if self.cost(best) < self.cost(here):
                here = best
            else:
                step **= 0.5

    def around(self, here: BuildOptions, step: float) -> list[BuildOptions]:
        near = [here._replace(height=here.height / step)]
        if here.height < self.natural:
            near.append(here._replace(height=min(here.height * step, self.natural)))
        if self.few:
            sizes = (here.widest - 1, here.widest + 1)
            near += [here._replace(widest=size) for size in sizes if 0 <= size < len(self.workload.sizes)]
        return near + [here._replace(bias=bias) for bias in BIASES if bias != here.bias]

    def cost(self, options: BuildOptions) -> float:
        if options not in self.costs:
            if len(self.costs) >= self.builds:
                return inf
            plan = build(self.workload, options)
            self.costs[options] = inf if plan is None else _total(self.workload, plan)
            if plan is not None and (self.best is None or self.costs[options] < self.best[0]):
                self.best = self.costs[options], plan
        return self.costs[options]


def _total(workload: Workload, plan: list[Packs]) -> float:
    """The plan's cost, and a little more for each micro-batch beyond those that the tokens need."""
    return plan_cost(workload, plan).total * (1 + TIE * (len(plan) / workload.min_micro_batches - 1))


def _ranks_needed(workload: Workload, height: float, joined: bool, reach: float) -> float:
    """Ranks of all micro-batches together that the groups of this height take, and the short sequences.

    These take as many as their tokens need, or their work at `reach` per rank.
    """
    if joined:
        groups, rest = groups_joined(workload, height)
        used = sum([len(alike) * width for alike, width in zip(groups, workload.sizes)])
        tokens, work = sum([workload.length[i] for i in rest]), sum([workload.work[i] for i in rest])
    else:
        ranges, singles = group_sizes(workload, height)
        used = sum([len(part) * width for parts, width in zip(ranges, workload.sizes) for part in parts])
        tokens = workload.length_before[singles.stop] - workload.length_before[singles.start]
        work = workload.work_before[singles.stop] - workload.work_before[singles.start]
    return used + max(tokens / workload.longest[0], work / reach)
