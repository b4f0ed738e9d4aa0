"""Plans of published schedulers as further starts of the search: ours costs no more than any that respects all limits.

They sort by length and place greedily; if sequences are few, that is sometimes better than any height we try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from math import ceil

from megatron_hcp.dcp.cover import settle
from megatron_hcp.dcp.published.dev import packing_aware
from megatron_hcp.dcp.published.fcp import flexible
from megatron_hcp.dcp.published.main import balanced_cp
from megatron_hcp.dcp.published.open_group import Batches
from megatron_hcp.dcp.published.static import dp_balanced
from megatron_hcp.dcp.workload import Pack, Packs, Workload
from megatron_hcp.ground.errors import HcpError

MOST = 1024
"""With more sequences the published schedulers would take longer than the search, which then finds better plans."""
TRIES = 3
"""How many bounds on tokens a scheduler is tried with."""
Scheduler = Callable[[list[int], int, int], Batches]
"""From lengths, W and M to groups."""


def published_plans(workload: Workload) -> Iterator[list[Packs]]:
    """The published schedulers' plans that exist and respect all limits of the workload.

    As they are where no rank is idle, and with the narrowest groups that suffice, idle ranks given work.
    """
    if len(workload.length) > MOST:
        return
    longest = workload.longest[0]
    schedulers: list[Scheduler] = [packing_aware, balanced_cp]
    if workload.setup.groups == "any":
        schedulers.append(partial(flexible, work=workload.setup.cost.work))
    fitting = [size for size in workload.sizes if size * longest >= workload.length[0]]
    static = next((size for size in fitting if workload.world_size % size == 0), None)
    if static is not None:
        schedulers.append(partial(dp_balanced, cp_size=static))
    for scheduler in schedulers:
        plan = _within_limits(workload, scheduler)
        if plan is None:
            continue
        if all(sum(workload.sizes[group.size] for group in batch) == workload.world_size for batch in plan):
            yield [[Pack(group.size, group.height, group.room, list(group.items)) for group in batch] for batch in plan]
        yield [settled for batch in plan for settled in settle(workload, batch)]


def _within_limits(workload: Workload, scheduler: Scheduler) -> list[Packs] | None:
    """The scheduler's groups, padded within M; None if it has none like that.

    The schedulers count unpadded tokens. If padding exceeds the limit, they plan again for a smaller M.
    """
    order = sorted(range(len(workload.ids)), key=workload.ids.__getitem__)  # as given, which static CP keeps
    lengths, most = [workload.length[i] for i in order], workload.longest[0]
    index = {size: number for number, size in enumerate(workload.sizes)}
    for _ in range(TRIES):
        try:
            batches = scheduler(lengths, workload.world_size, most)
        except HcpError:
            return None  # it has no plan for these
        if any(size not in index for batch in batches for size, _ in batch):
            return None
        plan = [
            [workload.group(index[size], [order[i] for i in items]) for size, items in batch if items]
            for batch in batches
        ]
        excess = max([-group.room * workload.unit[group.size] / workload.sizes[group.size] for group in chain(*plan)])
        if excess <= 0:
            return plan
        most -= ceil(excess)
        if most < 1:
            return None
    return None
