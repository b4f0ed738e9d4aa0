"""The contents of a picture of the CP groups: blocks of nodes, the CP members on each, inner and outer groups.

Nodes that are not connected by CP groups, directly or through other nodes, are in different blocks. In a large world,
blocks that look alike are drawn only once. This module deals with no coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from megatron_hcp.core.levels import all_levels_of, check_sizes, level_places_at
from megatron_hcp.core.placement import Placement, crosses
from megatron_hcp.core.ranks import Grids, RankGroups

ALL_BLOCKS_UP_TO = 256
"""Worlds of up to this many ranks are drawn with all their blocks."""
MAX_LOOKS = 4
"""In a larger world, one block of each kind is drawn, and at most this many."""
MAX_NODES, FIRST_NODES, LAST_NODES = 16, 8, 3
"""In a block of more than MAX_NODES nodes, only the first and last ones are drawn."""


class Cell(NamedTuple):
    """A GPU. `inner` and `outer` index its groups in the lists of levels 0 and 1; `outer` is None without level 1."""

    rank: int
    cp_group: int
    cp_rank: int
    inner: int
    outer: int | None


class Node(NamedTuple):
    number: int
    domain: int
    cells: tuple[Cell, ...]


class Block(NamedTuple):
    """Nodes connected by CP groups. `nodes` are drawn; `num_hidden` more are left out before nodes[hidden_after].

    `num_alike` counts this block and those that look the same; `crossing` are the inner groups that cross NVLink
    domains (nodes, if no domain was stated).
    """

    nodes: tuple[Node, ...]
    num_hidden: int
    hidden_after: int | None
    num_alike: int
    crossing: frozenset[int]


class Scene(NamedTuple):
    """`inner` and `outer`: (number of groups, how many cross NVLink domains); `outer` is None with one level."""

    blocks: tuple[Block, ...]
    num_blocks: int
    inner: tuple[int, int]
    outer: tuple[int, int] | None


def scene_of(grids: Grids, sizes: Sequence[int], place: Placement) -> Scene:
    """The blocks to draw; without `sizes` each CP group is one inner group.

    Raises:
        HcpError: the product of `sizes` is not the cp size.
    """
    groups = grids.groups("cp")
    levels = tuple(sizes) or (groups.group_size,)
    check_sizes(levels, groups.group_size)
    domains = place.domains()
    members: list[list[int]] = [[] for _ in range(place.num_nodes)]
    for ranks in groups:
        for rank in ranks:
            members[place.node_of(rank)].append(rank)
    blocks = _blocks(groups, place)
    looks: dict[object, list[list[int]]] = {}
    for nodes in blocks:
        is_alone = place.world_size <= ALL_BLOCKS_UP_TO
        looks.setdefault(nodes[0] if is_alone else _look(groups, nodes, members, domains), []).append(nodes)
    shown = list(looks.values())[: None if place.world_size <= ALL_BLOCKS_UP_TO else MAX_LOOKS]
    drawn = tuple(
        _block(groups, levels, [(node, members[node]) for node in alike[0]], domains, len(alike)) for alike in shown
    )
    counts = [(len(level), sum(crosses(ranks, domains) for ranks in level)) for level in all_levels_of(groups, levels)]
    return Scene(drawn, len(blocks), counts[0], counts[1] if sizes and len(counts) > 1 else None)


def _blocks(groups: RankGroups, place: Placement) -> list[list[int]]:
    """The nodes, grouped by the CP groups that span them."""
    lowest = list(range(place.num_nodes))

    def root(node: int) -> int:
        while lowest[node] != node:
            lowest[node] = lowest[lowest[node]]
            node = lowest[node]
        return node

    for ranks in groups:
        roots = {root(place.node_of(rank)) for rank in ranks}
        for other in roots:
            lowest[other] = min(roots)
    blocks: dict[int, list[int]] = {}
    for node in range(place.num_nodes):
        blocks.setdefault(root(node), []).append(node)
    return list(blocks.values())


def _look(groups: RankGroups, nodes: list[int], members: list[list[int]], domains: Sequence[int]) -> object:
    """Equal for blocks whose pictures differ only in their numbers."""
    order: dict[int, int] = {}
    first_domain = domains[members[nodes[0]][0]]
    return tuple(
        (domains[rank] - first_domain, order.setdefault(groups.index_of(rank), len(order)), groups.position_of(rank))
        if rank >= 0
        else None
        for node in nodes
        for rank in (*members[node], -1)
    )


def _block(
    groups: RankGroups,
    levels: Sequence[int],
    nodes: list[tuple[int, list[int]]],
    domains: Sequence[int],
    num_alike: int,
) -> Block:
    cells = {node: tuple(_cell(groups, levels, rank) for rank in ranks) for node, ranks in nodes}
    touched: dict[int, set[int]] = {}
    for row in cells.values():
        for cell in row:
            touched.setdefault(cell.inner, set()).add(domains[cell.rank])
    crossing = frozenset(inner for inner, places in touched.items() if len(places) > 1)
    shown = [Node(node, domains[row[0].rank], row) for node, row in cells.items()]
    hidden = len(shown) - FIRST_NODES - LAST_NODES
    if len(shown) <= MAX_NODES:
        return Block(tuple(shown), 0, None, num_alike, crossing)
    return Block((*shown[:FIRST_NODES], *shown[-LAST_NODES:]), hidden, FIRST_NODES, num_alike, crossing)


def _cell(groups: RankGroups, levels: Sequence[int], rank: int) -> Cell:
    cp_group, cp_rank = groups.index_of(rank), groups.position_of(rank)
    numbers = [
        cp_group * (groups.group_size // size) + local
        for size, (local, _) in zip(levels, level_places_at(levels, cp_rank))
    ]
    return Cell(rank, cp_group, cp_rank, numbers[0], numbers[1] if len(numbers) > 1 else None)
