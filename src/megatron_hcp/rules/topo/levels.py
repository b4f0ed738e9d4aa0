"""The levels of hierarchical CP: which of them stay inside an NVLink domain."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import level_sizes
from megatron_hcp.rules.hcp.launches import LEVELS
from megatron_hcp.rules.hcp.view import flat_fixes, runs_hcp, two_levels
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.topo.view import split_group_here, suits_inner_level
from megatron_hcp.rules.upstream import PARALLEL_STATE, TE_CONTEXT_PARALLEL
from megatron_hcp.rules.view import View


def _fits_one_domain(v: View) -> bool:
    """Whether all ranks are known to share one NVLink domain."""
    return v.known("world_size", "nvlink_domain") and v.world_size <= v.nvlink_domain


@rule(
    "TOPO001",
    "warning slow never",
    source=(
        PARALLEL_STATE.says(
            "create_hierarchical_groups", "u=int(np.prod(hierarchical_group_sizes[:level])),", ">=0.13"
        ),
        PARALLEL_STATE.says("initialize_model_parallel", 'order: str = "tp-cp-ep-dp-pp"', ">=0.12"),
    ),
    applies=runs_hcp,
    good=Example(
        "mlm", f"--tensor-model-parallel-size 2 --context-parallel-size 8 {LEVELS} 4 2", "nodes=2 gpus_per_node=8"
    ),
    bad=Example(
        "mlm", f"--tensor-model-parallel-size 4 --context-parallel-size 8 {LEVELS} 4 2", "nodes=4 gpus_per_node=8"
    ),
)
def inner_level_stays_in_the_nvlink_domain(v: View) -> Problem | None:
    """The inner all-to-all stays inside an NVLink domain.

    The inner level groups adjacent CP ranks, which are tensor_model_parallel_size apart in the global numbering. If tp
    x inner size doesn't divide the NVLink domain, the all-to-all meant for NVLink crosses the network. Nothing upstream
    checks this; only the step time shows it.
    """
    levels = two_levels(v)
    if levels is None or _fits_one_domain(v):
        return None
    group = split_group_here(v, levels[0])
    if group is None:
        return None
    better = level_sizes(v)
    fixes = [] if better is None else [Fix({"hcp_sizes": better}, "the inner level stays inside an NVLink domain")]
    return Problem(
        message="the inner all-to-all crosses NVLink domains: it runs at network speed, several times slower",
        found=f"inner size {levels[0]}: ranks {', '.join(map(str, group))} in NVLink domains of {v.nvlink_domain} GPUs",
        wanted=f"tensor_model_parallel_size x inner size that divides {v.nvlink_domain}",
        facts=("hcp_sizes", "tp", "nvlink_domain"),
        fixes=(*fixes, *flat_fixes(v, "p2p")),
    )


@rule(
    "TOPO002",
    "warning slow never",
    source=(
        PARALLEL_STATE.says("create_hierarchical_groups", "s=hierarchical_group_sizes[level],", ">=0.13"),
        TE_CONTEXT_PARALLEL.says("attn_forward_func_with_cp", "cp_group = [a2a_cp_group, p2p_cp_group]", ">=2.8"),
    ),
    applies=runs_hcp,
    good=Example("mlm", f"--context-parallel-size 16 {LEVELS} 8 2", "nodes=2 gpus_per_node=8"),
    bad=Example("mlm", f"--context-parallel-size 16 {LEVELS} 2 8", "nodes=2 gpus_per_node=8"),
)
def sizes_are_inner_first(v: View) -> Problem | None:
    """The hierarchical sizes are written inner first.

    The first size is the all-to-all level, the second the ring. [2, 8] for eight GPUs per node on two nodes has the
    right product and the wrong shape: the all-to-all uses two GPUs, the ring of eight crosses the network.
    """
    levels = two_levels(v)
    if levels is None or levels[1] <= levels[0] or _fits_one_domain(v):
        return None
    inner, outer = levels
    if v.cp * v.tp <= v.nvlink_domain or not suits_inner_level(v, outer) or not suits_inner_level(v, inner):
        return None
    return Problem(
        message="the sizes look reversed: the small level is inside the NVLink domain, the large one crosses it",
        found=f"hierarchical_context_parallel_sizes [{inner}, {outer}] in NVLink domains of {v.nvlink_domain} GPUs",
        wanted=f"[inner, outer] = [{outer}, {inner}]",
        facts=("hcp_sizes", "nvlink_domain"),
        fixes=(Fix({"hcp_sizes": (outer, inner)}, f"all-to-all over {outer} ranks inside, a ring of {inner} outside"),),
    )
