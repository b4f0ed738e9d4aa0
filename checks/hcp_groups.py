"""The process groups that torch.distributed actually built are the ones that `hcp groups` computes.

For several topologies megatron-core initializes its model parallelism, then every rank reads back what is registered:
all dense and expert groups, the hierarchical CP levels, the dynamic (hybrid) CP groups. Each must have the computed
members in the computed order, and nothing may be missing. The groups that runtime builds itself are compared in
the same way. An all-reduce over every group of the levels shows that it connects its members and no other rank.
"""

import sys
from typing import Any

from megatron_hcp.core.levels import all_levels_of
from megatron_hcp.core.ranks import GROUPS, grids_of
from megatron_hcp.proofs.program import Program

TOPOLOGIES: dict[int, list[dict[str, Any]]] = {
    4: [
        {"cp": 4, "hcp": [2, 2]},
        {"tp": 2, "cp": 2, "hcp": [2, 1]},
        {"cp": 2, "pp": 2, "ep": 2},
        {"cp": 2, "ep": 2, "dynamic": True},
    ],
    8: [
        {"cp": 8, "hcp": [2, 4]},
        {"cp": 8, "hcp": [4, 2]},
        {"tp": 2, "cp": 4, "hcp": [2, 2]},
        {"cp": 4, "hcp": [2, 2], "pp": 2},
        {"tp": 2, "cp": 2, "pp": 2, "ep": 2, "order": "tp-cp-ep-pp-dp"},
        {"cp": 2, "ep": 4, "dynamic": True},
    ],
}


def add_arguments(parser):
    parser.add_argument(
        "--world-size",
        type=int,
        choices=sorted(TOPOLOGIES),
        default=4,
        help="number of processes (default: %(default)s)",
    )


def work(world, options):
    for topology in TOPOLOGIES[world.size]:
        sizes = {axis: topology.get(axis, 1) for axis in ("tp", "cp", "pp", "ep")}
        order = topology.get("order", "tp-cp-ep-dp-pp")
        grids = grids_of(world.size, **sizes, order=order)
        label = " ".join(f"{name}={value}" for name, value in topology.items())
        compare_megatron(world, label, topology, grids, sizes, order)
        compare_ours(world, label, topology, grids)


def compare_megatron(world, label, topology, grids, sizes, order):
    from megatron.core import parallel_state

    from megatron_hcp.proofs.megatron import model_parallel
    from megatron_hcp.runtime.groups import built_groups

    with model_parallel(
        tp=sizes["tp"],
        cp=sizes["cp"],
        hcp_sizes=topology.get("hcp"),
        timeout=world.timeout,
        pipeline_model_parallel_size=sizes["pp"],
        expert_model_parallel_size=sizes["ep"],
        order=order,
        hybrid_context_parallel=topology.get("dynamic", False),
    ):
        built = built_groups()
        wrong = []
        for name, (_, _, desc) in GROUPS.items():
            wanted = list(grids.groups(name).of(world.rank))
            if built.get(desc) != [wanted]:
                wrong.append(f"{desc}: {built.get(desc)}, wanted {wanted}")
        world.expect(f"megatron-core {label}: {len(GROUPS)} kinds of groups", not wrong, "; ".join(wrong))
        if "hcp" in topology:
            levels = parallel_state.get_hierarchical_context_parallel_groups()
            compare_levels(world, f"megatron-core {label}", levels, grids, topology["hcp"], built)
        if "dynamic" in topology:
            ranks = list(grids.groups("dp-cp").of(world.rank))
            widths = dynamic_sizes(len(ranks))
            runs = {size: [run_of(ranks, size, world.rank)] for size in widths}
            found = {size: built.get(f"HYBRID_DP_CP_GROUP_{size}") for size in widths}
            world.expect(f"megatron-core {label}: dynamic CP sizes {widths}", found == runs, f"found {found}")


def compare_ours(world, label, topology, grids):
    from megatron_hcp.runtime.groups import GroupBuilder, built_groups

    num_before = len(built_groups())
    with GroupBuilder(world.timeout) as builder:
        if "hcp" in topology:
            levels = builder.build_levels(grids.groups("cp"), topology["hcp"])
            compare_levels(world, f"ours {label}", levels, grids, topology["hcp"], built_groups())
        if "dynamic" in topology:
            ranks = list(grids.groups("dp-cp").of(world.rank))
            builder.build_dynamic_cp(grids.groups("dp-cp"), dynamic_sizes(len(ranks)))
            built = built_groups()
            found = {size: built[f"DYNAMIC_DP_CP_GROUP_{size}"] for size in dynamic_sizes(len(ranks))}
            wanted = {size: [run_of(ranks, size, world.rank)] for size in found}
            world.expect(f"ours {label}: dynamic CP sizes {list(wanted)}", found == wanted, f"found {found}")
        num_built = len(built_groups()) - num_before
    if num_built:
        left = len(built_groups()) - num_before
        world.expect(f"ours {label}: all destroyed", left == 0, f"{num_built} kinds built, {left} left")


def compare_levels(world, label, levels, grids, sizes, built):
    import torch
    import torch.distributed as dist

    wanted = [
        next(list(group) for group in groups if world.rank in group)
        for groups in all_levels_of(grids.groups("cp"), sizes)
    ]
    found = [dist.get_process_group_ranks(group) for group in levels]
    named = [built.get(f"HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L{level}") for level in range(len(sizes))]
    world.expect(
        f"{label}: levels",
        found == wanted and named == [[ranks] for ranks in wanted],
        f"{found}" if found == wanted else f"{found}, registered as {named}, wanted {wanted}",
    )
    sums = []
    for group in levels:
        total = torch.tensor(1 << world.rank)
        dist.all_reduce(total, group=group)
        sums.append(total.item())
    reached = [[rank for rank in range(world.size) if total >> rank & 1] for total in sums]
    world.expect(
        f"{label}: an all-reduce reaches the level", reached == [sorted(ranks) for ranks in wanted], f"{reached}"
    )


def dynamic_sizes(dp_cp_size):
    """The sizes for which megatron-core builds groups: 2, 4, ... up to 2^(int(log2 W) - 1)."""
    return [1 << power for power in range(1, dp_cp_size.bit_length() - 1)]


def run_of(ranks, size, rank):
    start = ranks.index(rank) // size * size
    return ranks[start : start + size]


if __name__ == "__main__":
    sys.exit(
        Program(
            "hcp_groups",
            __doc__,
            work,
            world_size=lambda options: options.world_size,
            needs=("torch", "megatron.core", "einops"),
            add_arguments=add_arguments,
        ).main()
    )
