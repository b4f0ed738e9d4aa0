"""Which rank is on which node, and whether the groups of context parallelism lie where they should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from megatron_hcp.core.levels import levels_of
from megatron_hcp.core.ranks import DEFAULT_ORDER, grids_of
from megatron_hcp.ground.errors import HcpError

Say = Callable[..., None]
"""Prints an event by its name and fields."""


def sizes_in(words: Sequence[str]) -> dict[str, Any]:
    """The sizes and the order in words such as `--tp=2` and `--hcp=2,2`, by name."""
    pairs = (word.removeprefix("--").partition("=") for word in words)
    return {name: value for name, _, value in pairs}


def map_ranks(nodes: Sequence[str], sizes: dict[str, Any], say: Say) -> None:
    """Prints the place of every rank, and the groups of hierarchical context parallelism.

    Args:
        nodes: each rank's node.
        sizes: `gpus-per-node`, and those of tp, cp, pp, ep, etp, gtp, hcp and order that the launch states.

    Raises:
        HcpError: the sizes do not divide the ranks, or the ranks are not placed in blocks.
    """
    per_node = int(sizes["gpus-per-node"])
    hcp = tuple(int(size) for size in sizes["hcp"].split(",")) if sizes.get("hcp") else ()
    size = {name: int(sizes.get(name) or 0) for name in ("tp", "cp", "pp", "ep", "etp", "gtp")}
    grids = grids_of(
        len(nodes),
        tp=size["tp"] or 1,
        cp=size["cp"] or 1,
        pp=size["pp"] or 1,
        ep=size["ep"] or 1,
        etp=size["etp"] or None,
        gtp=size["gtp"] or 1,
        order=sizes.get("order") or DEFAULT_ORDER,
    )
    cp = grids.groups("cp")
    for rank, node in enumerate(nodes):
        place = {name: value for name, value in grids.dense.coordinates(rank).items() if name in ("tp", "dp", "pp")}
        position = cp.position_of(rank)
        place |= {"cp_inner": position % hcp[0], "cp_outer": position // hcp[0]} if hcp else {"cp": position}
        say("rank", rank=rank, node=node, **place)
    inside = True
    for group in cp:
        for level, groups in enumerate(levels_of(group, hcp) if hcp else ()):
            for members in groups:
                say("group", desc=f"HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L{level}", ranks=list(members))
                inside = inside and (level > 0 or len({nodes[rank] for rank in members}) == 1)
    if hcp:
        say("inner-groups", inside_a_node=inside)
    misplaced = misplaced_rank(nodes, per_node)
    if misplaced is not None:
        first = misplaced // per_node * per_node
        raise HcpError(
            f"rank {misplaced} is on {nodes[misplaced]}, rank {first} on {nodes[first]}: the ranks are not placed in "
            "blocks, so inner groups cross nodes",
            do="use --distribution=block",
        )


def misplaced_rank(nodes: Sequence[str], per_node: int) -> int | None:
    """The first rank that is not on the node of its block of `per_node` ranks; None if all are.

    >>> misplaced_rank(["a", "a", "b", "b"], 2), misplaced_rank(["a", "b", "a", "b"], 2)
    (None, 1)
    """
    return next((rank for rank, node in enumerate(nodes) if node != nodes[rank // per_node * per_node]), None)
