"""Where the groups of a layout lie: for each axis the distance of its ranks, and what its groups cross."""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.time.links import fits_inside


class Axis(NamedTuple):
    """An axis of the rank mesh: rank r's group is r + i * stride. `reach`: node, NVLink domain or network."""

    name: str
    size: int
    stride: int
    reach: str


def rank_map(layout: Layout, job: PlanJob) -> list[Axis]:
    """The axes with more than one rank, in megatron-core's order tp-cp-ep-dp-pp; the experts' own grid last."""
    dp, edp = job.dp(layout), job.edp(layout)
    inner, outer = layout.hcp_sizes or (1, 1)
    attention = layout.tp * layout.cp
    axes = [
        ("tp", layout.tp, 1), ("cp", layout.cp, layout.tp), ("cp inner", inner, layout.tp),
        ("cp outer", outer, layout.tp * inner), ("dp", dp, attention), ("pp", layout.pp, attention * dp),
        ("etp", layout.etp, 1), ("ep", layout.ep, layout.etp),
    ]  # fmt: skip
    if layout.ep > 1 or layout.etp > 1:
        axes.append(("expert dp", edp, layout.etp * layout.ep))
    return [Axis(name, size, stride, _reach(size, stride, job)) for name, size, stride in axes if size > 1]


def _reach(size: int, stride: int, job: PlanJob) -> str:
    if fits_inside(size, stride, min(job.gpus_per_node, job.world_size)):
        return "node"
    return "NVLink domain" if fits_inside(size, stride, job.domain) else "network"
