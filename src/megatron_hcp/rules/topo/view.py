"""Helpers for rules about ranks: how many a replica takes, and which groups stay inside an NVLink domain."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from megatron_hcp.core import fits
from megatron_hcp.core.ranks import DEFAULT_ORDER, RankMesh
from megatron_hcp.rules.cp.view import fits_heads, is_fsdp
from megatron_hcp.rules.view import View

_ENOUGH = 20_000
"""How many groups are examined: far more than any domain's pattern needs before it repeats."""


def dense_ranks(v: View) -> int:
    """Ranks of one replica: tp x cp x pp (x weight shards, where they are known)."""
    return fits.dense_ranks(v.tp, v.cp, v.pp, v.get("gtp", 1))


def expert_ranks(v: View) -> int:
    """Ranks of one replica of the experts: etp x ep x pp (x weight shards, where they are known)."""
    return fits.expert_ranks(v.etp, v.ep, v.pp, v.get("egtp", 1))


def grids_divide_ranks(v: View) -> bool:
    """Whether both grids divide the ranks; otherwise TOPO003 or TOPO004 reports it."""
    world_size = int(v.world_size)
    return world_size % dense_ranks(v) == 0 and world_size % expert_ranks(v) == 0


def replica_ranks(v: View) -> int:
    """Ranks of one replica: tp x cp x pp, and weight shards, each where it is known to be above 1."""
    return fits.dense_ranks(v.tp, v.cp, v.get("pp", 1), v.get("gtp", 1))


def dense_mesh(v: View, world_size: int) -> RankMesh | None:
    """The dense mesh for that world size; None if the sizes or the order don't fit it (TOPO003, TOPO007)."""
    replica = replica_ranks(v)
    if world_size % replica:
        return None
    sizes = {
        "tp": v.tp, "gtp": v.get("gtp", 1), "cp": v.cp, "ep": 1, "dp": world_size // replica, "pp": v.get("pp", 1)
    }  # fmt: skip
    order = str(v.get("rank_order") or DEFAULT_ORDER).split("-")
    if "gtp" not in order and "tp" in order:
        order.insert(order.index("tp") + 1, "gtp")
    return RankMesh({axis: sizes[axis] for axis in order}) if sorted(order) == sorted(sizes) else None


def split_group(v: View, inner: int, world_size: int) -> list[int] | None:
    """The first a2a group of `inner` adjacent CP ranks that spans two NVLink domains; None if all stay inside one.

    Assumes that ranks are placed block by block: cyclic placement is left to SLURM001.
    """
    mesh = dense_mesh(v, world_size)
    if mesh is None or inner == 1:
        return None
    domain = v.nvlink_domain
    for ranks in islice(inner_groups(mesh, inner), _ENOUGH):
        if ranks[0] // domain != ranks[-1] // domain:
            return list(ranks[:16])
    return None


def inner_groups(mesh: RankMesh, inner: int) -> Iterator[range]:
    """The groups of `inner` adjacent members of each CP group (level 0 of hierarchical CP)."""
    stride = mesh.strides["cp"]
    for group in mesh.groups("cp"):
        for first in range(group[0], group[0] + mesh.sizes["cp"] * stride, inner * stride):
            yield range(first, first + inner * stride, stride)


def split_group_here(v: View, inner: int) -> list[int] | None:
    """Like `split_group`, for any world size if one replica shows it; else for the launch's, which is requested."""
    if not v.known("world_size") and inner > 1:
        found = split_group(v, inner, replica_ranks(v))
        if found is not None:
            return found
    return split_group(v, inner, v.world_size)


def suits_inner_level(v: View, inner: int) -> bool:
    """Whether an inner level of that size would be legal and stay inside one NVLink domain."""
    return fits_heads(v, inner) is not False and split_group_here(v, inner) is None


def fits_a_gpu(v: View, **sizes: int) -> bool:
    """Whether some GPU may hold a rank's dense layers with other `sizes`: what isn't known counts nothing.

    A parameter takes at least 4 bytes (weight and gradient), and 12 of the optimizer that ranks of DP may share.
    """
    from megatron_hcp.cost.gpus import GPUS

    if v.dialect != "mlm" or is_fsdp(v) or v.get("optimizer_cpu_offload"):
        return True
    tp, pp, cp = (sizes.get(name, v.get(name, 1)) for name in ("tp", "pp", "cp"))
    layers, hidden = (v.get(name) or 0 for name in ("num_layers", "hidden_size"))
    wide = 0 if v.get("num_experts") else 2 * (v.get("ffn_hidden_size") or 0)
    parameters = layers * hidden * (2 * hidden + wide) / (tp * pp)
    shared = max(1, v.world_size // (tp * pp * cp)) * cp
    return bool(parameters * (4 + 12 / shared) <= max(gpu.memory_bytes for gpu in GPUS.values()))
