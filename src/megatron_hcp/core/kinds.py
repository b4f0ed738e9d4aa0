"""All kinds of rank groups of a launch: those in GROUPS, and the levels of hierarchical CP after `cp`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from megatron_hcp.core.levels import all_levels_of, check_sizes, level_groups_at, level_places_at
from megatron_hcp.core.ranks import GROUPS, Grids

LEVEL_COMM = ("a2a", "p2p")
"""What Transformer Engine does in each level. It takes exactly two."""


class Kind(NamedTuple):
    """The groups of one kind.

    `upstream` is the group_desc that NCCL's logs and the flight recorder show; `level` and `comm` are None except for
    the levels of hierarchical CP.
    """

    name: str
    grid: str
    axes: tuple[str, ...]
    level: int | None
    comm: str | None
    upstream: str
    groups: Sequence[Sequence[int]]


class RankKind(NamedTuple):
    """The one group of a kind that contains a rank: its index in the list of groups, the rank's position in it."""

    name: str
    level: int | None
    comm: str | None
    upstream: str
    group_index: int
    position: int
    ranks: Sequence[int]


def kinds_of(grids: Grids, sizes: Sequence[int] = ()) -> list[Kind]:
    """All groups, kind by kind, in the order in which megatron-core creates them; `sizes` are the levels of CP.

    Raises:
        HcpError: the product of `sizes` isn't the cp size.
    """
    kinds = []
    for name, (grid, _, upstream) in GROUPS.items():
        kinds.append(Kind(name, grid, _axes(grids, name), None, None, upstream, grids.groups(name)))
        if name == "cp" and sizes:
            check_sizes(sizes, grids.dense.sizes["cp"])
            for level, groups in enumerate(all_levels_of(grids.groups("cp"), sizes)):
                kinds.append(
                    Kind(f"cp.L{level}", grid, ("cp",), level, _comm(level, sizes), _level_desc(level), groups)
                )
    return kinds


def kinds_at(grids: Grids, rank: int, sizes: Sequence[int] = ()) -> list[RankKind]:
    """The groups of one rank in the same order, in closed form, without building lists of groups.

    Raises:
        HcpError: the product of `sizes` isn't the cp size.
    """
    assert 0 <= rank < grids.world_size, (rank, grids.world_size)
    kinds = []
    for name, (_, _, upstream) in GROUPS.items():
        groups = grids.groups(name)
        index, position, ranks = groups.index_of(rank), groups.position_of(rank), groups.of(rank)
        kinds.append(RankKind(name, None, None, upstream, index, position, ranks))
        if name == "cp" and sizes:
            members = level_groups_at(ranks, sizes, position)
            for level, (local, place) in enumerate(level_places_at(sizes, position)):
                first = index * (groups.group_size // sizes[level])
                kinds.append(
                    RankKind(
                        f"cp.L{level}",
                        level,
                        _comm(level, sizes),
                        _level_desc(level),
                        first + local,
                        place,
                        members[level],
                    )
                )
    return kinds


def _axes(grids: Grids, name: str) -> tuple[str, ...]:
    """The axes of the groups in the order of the mesh; gtp is named only where it is used."""
    grid, axes, _ = GROUPS[name]
    mesh = grids.dense if grid == "dense" else grids.expert
    return tuple(axis for axis in mesh.sizes if axis in axes and (axis != "gtp" or mesh.sizes[axis] > 1))


def _comm(level: int, sizes: Sequence[int]) -> str | None:
    return LEVEL_COMM[level] if len(sizes) == len(LEVEL_COMM) else None


def _level_desc(level: int) -> str:
    return f"HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L{level}"
