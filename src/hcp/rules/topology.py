"""Where the levels of hierarchical CP are: inside an NVLink domain, or across."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from hcp.core.ranks import DEFAULT_ORDER, RankMesh
from hcp.rules.comm import fits_heads, flat_fixes, level_sizes, runs_hcp, two_levels
from hcp.rules.rule import Example, Fix, Problem, View, rule
from hcp.rules.upstream import PARALLEL_STATE, TE_CONTEXT_PARALLEL

_ENOUGH = 20_000
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


def _smallest_world(v: View) -> int:
    return int(v.tp * v.get("gtp", 1) * v.cp * v.get("pp", 1))


def _leaving_here(v: View, inner: int) -> list[int] | None:
    """As `leaving`. Without a world size: what one replica shows holds for all worlds; else the size is asked for."""
    if not v.known("world_size") and inner > 1:
        found = leaving(v, inner, _smallest_world(v))
        if found is not None:
            return found
    return leaving(v, inner, v.world_size)


def _wider(v: View, inner: int) -> bool:
    """Whether an inner level of that size would be legal and stay inside an NVLink domain."""
    return fits_heads(v, inner) is not False and _leaving_here(v, inner) is None


def _one_domain(v: View) -> bool:
    return v.known("world_size", "nvlink_domain") and v.world_size <= v.nvlink_domain


_HCP = "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes"


@rule(
    "TOPO001",
    severity="warning",
    effect="slow",
    stage="never",
    source=(
        PARALLEL_STATE.says(
            "create_hierarchical_groups", "u=int(np.prod(hierarchical_group_sizes[:level])),", ">=0.13"
        ),
        PARALLEL_STATE.says("initialize_model_parallel", 'order: str = "tp-cp-ep-dp-pp"', ">=0.12"),
    ),
    applies=runs_hcp,
    good=Example(
        "mlm", f"--tensor-model-parallel-size 2 --context-parallel-size 8 {_HCP} 4 2", "nodes=2 gpus_per_node=8"
    ),
    bad=Example(
        "mlm", f"--tensor-model-parallel-size 4 --context-parallel-size 8 {_HCP} 4 2", "nodes=4 gpus_per_node=8"
    ),
)
def inner_level_stays_in_the_nvlink_domain(v: View) -> Problem | None:
    """The inner all-to-all stays inside an NVLink domain.

    The inner level joins adjacent CP ranks, which are tensor_model_parallel_size apart in the global numbering.
    Where tp x inner size does not divide the NVLink domain, the all-to-all that is meant for NVLink crosses the
    network. Nothing upstream checks it; only the step time shows it.
    """
    levels = two_levels(v)
    if levels is None or _one_domain(v):
        return None
    group = _leaving_here(v, levels[0])
    if group is None:
        return None
    better = level_sizes(v)
    fixes = [] if better is None else [Fix({"hcp_sizes": better}, "the inner level stays inside an NVLink domain")]
    return Problem(
        message="the inner all-to-all leaves the NVLink domain: it runs at network speed, several times slower",
        found=f"inner size {levels[0]}: ranks {', '.join(map(str, group))} in NVLink domains of {v.nvlink_domain} GPUs",
        wanted=f"tensor_model_parallel_size x inner size that divides {v.nvlink_domain}",
        facts=("hcp_sizes", "tp", "nvlink_domain"),
        fixes=(*fixes, *flat_fixes(v, "p2p")),
    )


@rule(
    "TOPO002",
    severity="warning",
    effect="slow",
    stage="never",
    source=(
        PARALLEL_STATE.says("create_hierarchical_groups", "s=hierarchical_group_sizes[level],", ">=0.13"),
        TE_CONTEXT_PARALLEL.says("attn_forward_func_with_cp", "cp_group = [a2a_cp_group, p2p_cp_group]", ">=2.8"),
    ),
    applies=runs_hcp,
    good=Example("mlm", f"--context-parallel-size 16 {_HCP} 8 2", "nodes=2 gpus_per_node=8"),
    bad=Example("mlm", f"--context-parallel-size 16 {_HCP} 2 8", "nodes=2 gpus_per_node=8"),
)
def sizes_are_inner_first(v: View) -> Problem | None:
    """The hierarchical sizes are written inner first.

    The first size is the all-to-all level, the second the ring. [2, 8] for eight GPUs per node on two nodes has the
    right product and the wrong shape: the all-to-all uses two GPUs, the ring of eight crosses the network.
    """
    levels = two_levels(v)
    if levels is None or levels[1] <= levels[0] or _one_domain(v):
        return None
    inner, outer = levels
    if v.cp * v.tp <= v.nvlink_domain or not _wider(v, outer) or not _wider(v, inner):
        return None
    return Problem(
        message="the sizes look reversed: the small level is inside the NVLink domain, the large one crosses it",
        found=f"hierarchical_context_parallel_sizes [{inner}, {outer}] in NVLink domains of {v.nvlink_domain} GPUs",
        wanted=f"[inner, outer] = [{outer}, {inner}]",
        facts=("hcp_sizes", "nvlink_domain"),
        fixes=(Fix({"hcp_sizes": (outer, inner)}, f"all-to-all over {outer} ranks inside, a ring of {inner} outside"),),
    )


@rule(
    "SLURM003",
    severity="warning",
    effect="slow",
    stage="never",
    source=(PARALLEL_STATE.says("create_hierarchical_groups", "s=hierarchical_group_sizes[level],", ">=0.13"),),
    applies=runs_hcp,
    good=Example("mlm", f"--context-parallel-size 16 {_HCP} 8 2", "nodes=32 gpus_per_node=4 nvlink_domain=8"),
    bad=Example("mlm", f"--context-parallel-size 16 {_HCP} 4 4", "nodes=32 gpus_per_node=4 nvlink_domain=64"),
)
def inner_level_uses_the_nvlink_domain(v: View) -> Problem | None:
    """The inner level uses the NVLink domain, not the tray.

    On GB200 and GB300 racks a Slurm node is a tray of 4 GPUs, while NVLink joins up to 72. An inner size made for
    the tray leaves most of the hierarchy on the ring.
    """
    levels = two_levels(v)
    if levels is None or v.nvlink_domain <= v.gpus_per_node:
        return None
    inner, outer = levels
    if inner * v.tp != v.gpus_per_node or (outer > inner and _wider(v, outer)):
        return None  # not sized by the tray, or TOPO002
    better = level_sizes(v)
    if better is None or better[0] <= inner or not _wider(v, better[0]):
        return None
    return Problem(
        message=f"the inner all-to-all stops at the tray; NVLink reaches {v.nvlink_domain} GPUs",
        found=f"inner size {inner}, tensor_model_parallel_size {v.tp}, {v.gpus_per_node} GPUs per node",
        wanted=f"an inner size for the NVLink domain: {better[0]}",
        facts=("hcp_sizes", "gpus_per_node", "nvlink_domain"),
        fixes=(Fix({"hcp_sizes": better}, f"all-to-all over {better[0]} ranks inside the NVLink domain"),),
    )


RULES = (inner_level_stays_in_the_nvlink_domain, sizes_are_inner_first, inner_level_uses_the_nvlink_domain)
