"""Placement: where the groups of levels lie on nodes and NVLink domains."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from hcp.core.ranks import DEFAULT_ORDER, RankMesh
from hcp.rules.hcp.view import (
    fits_heads,
)
from hcp.rules.view import View

ENOUGH = 20_000
"""Groups looked at: far more than the pattern of any domain needs before it repeats."""


def dense_mesh(v: View, world_size: int) -> RankMesh | None:
    """The dense mesh of that world; None where the sizes or the order do not fit it (TOPO003, TOPO007)."""
    sizes = {"tp": v.tp, "gtp": v.get("gtp", 1), "cp": v.cp, "ep": 1, "dp": 1, "pp": v.get("pp", 1)}
    shard = sizes["tp"] * sizes["gtp"] * sizes["cp"] * sizes["pp"]
    if world_size % shard:
        return None
    sizes["dp"] = world_size // shard
    order = str(v.get("rank_order") or DEFAULT_ORDER).split("-")
    if "gtp" not in order and "tp" in order:
        order.insert(order.index("tp") + 1, "gtp")
    return RankMesh({axis: sizes[axis] for axis in order}) if sorted(order) == sorted(sizes) else None


def leaving(v: View, inner: int, world_size: int) -> list[int] | None:
    """The first a2a group of `inner` adjacent CP ranks that lies in two NVLink domains; None where all stay inside.

    Ranks are taken to be placed block by block: what a cyclic placement does is SLURM001's business.
    """
    mesh = dense_mesh(v, world_size)
    if mesh is None or inner == 1:
        return None
    domain = v.nvlink_domain
    for ranks in islice(inner_groups(mesh, inner), ENOUGH):
        if ranks[0] // domain != ranks[-1] // domain:
            return list(ranks[:16])
    return None


def inner_groups(mesh: RankMesh, inner: int) -> Iterator[range]:
    """The groups of `inner` adjacent members of each CP group (level 0 of hierarchical CP)."""
    stride = mesh.strides["cp"]
    for group in mesh.groups("cp"):
        for first in range(group[0], group[0] + mesh.sizes["cp"] * stride, inner * stride):
            yield range(first, first + inner * stride, stride)


def smallest_world(v: View) -> int:
    return int(v.tp * v.get("gtp", 1) * v.cp * v.get("pp", 1))


def leaving_here(v: View, inner: int) -> list[int] | None:
    """As `leaving`. Without a world size: what one replica shows holds for all worlds; else the size is asked for."""
    if not v.known("world_size") and inner > 1:
        found = leaving(v, inner, smallest_world(v))
        if found is not None:
            return found
    return leaving(v, inner, v.world_size)


def wider(v: View, inner: int) -> bool:
    """Whether an inner level of that size would be legal and stay inside an NVLink domain."""
    return fits_heads(v, inner) is not False and leaving_here(v, inner) is None


HCP = "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes"
