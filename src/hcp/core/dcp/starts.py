"""Plans of published schedulers as further starts of the search: ours costs no more than one that keeps all limits.

They sort by length and place greedily; where sequences are few that is at times better than any height we try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from hcp.core.dcp.cover import settle
from hcp.core.dcp.published.dev import packing_aware
from hcp.core.dcp.published.fcp import flexible
from hcp.core.dcp.published.main import balanced_cp
from hcp.core.dcp.published.open_group import Batches
from hcp.core.dcp.published.static import dp_balanced
from hcp.core.dcp.workload import Packs, Workload
from hcp.core.errors import HcpError

MOST = 1024
"""With more sequences the published schedulers would take longer than the search, which then finds better plans."""


def published_plans(workload: Workload) -> Iterator[list[Packs]]:
    """The plans of the published schedulers that exist and keep all limits of the workload, idle ranks given work."""
    if len(workload.length) > MOST:
        return
    order = sorted(range(len(workload.ids)), key=workload.ids.__getitem__)  # as given, which static CP keeps
    lengths, ranks, most = [workload.length[i] for i in order], workload.world_size, workload.longest[0]
    schedulers: list[Callable[[list[int], int, int], Batches]] = [packing_aware, balanced_cp]
    if workload.setup.groups == "any":
        schedulers.append(partial(flexible, work=workload.setup.cost.work))
    static = next((size for size in workload.sizes if size * most >= max(lengths) and ranks % size == 0), None)
    if static is not None:
        schedulers.append(partial(dp_balanced, cp_size=static))
    for scheduler in schedulers:
        try:
            batches = scheduler(lengths, ranks, most)
        except HcpError:
            continue  # it has no plan for these
        plan = _packs(workload, [[(size, [order[i] for i in items]) for size, items in batch] for batch in batches])
        if plan is not None:
            yield [settled for batch in plan for settled in settle(workload, batch)]


def _packs(workload: Workload, batches: Batches) -> list[Packs] | None:
    """The same groups as ours, or None if one of them breaks a limit."""
    index = {size: number for number, size in enumerate(workload.sizes)}
    plan = []
    for batch in batches:
        if any(size not in index for size, _ in batch):
            return None
        plan.append([workload.group(index[size], items) for size, items in batch if items])
    return plan if all(group.room >= 0 for batch in plan for group in batch) else None
