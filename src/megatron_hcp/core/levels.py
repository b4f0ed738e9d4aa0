"""Hierarchical context parallelism: one CP group split into levels.

Level 0 is the inner one: adjacent members of the CP group, all-to-all. Level 1 is the outer one: members that stand
`sizes[0]` apart, a ring. Source: megatron-core, megatron/core/parallel_state.py, create_hierarchical_groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from megatron_hcp.ground.errors import HcpError


def levels_of(ranks: Sequence[int], sizes: Sequence[int]) -> list[list[Sequence[int]]]:
    """The groups of each level of one CP group, in megatron-core's order: `levels_of(…)[level][index]`.

    Args:
        ranks: the members of one CP group, in cp order; any length that is the product of `sizes`.
        sizes: (inner, outer), or any number of levels; the first varies fastest.

    >>> [[list(group) for group in level] for level in levels_of(range(4), (2, 2))]
    [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]

    Raises:
        HcpError: the product of `sizes` is not the size of the group.
    """
    check_sizes(sizes, len(ranks))
    levels: list[list[Sequence[int]]] = []
    stride = 1
    for size in sizes:
        block = size * stride
        levels.append(
            [
                ranks[start + offset : start + block : stride]
                for start in range(0, len(ranks), block)
                for offset in range(stride)
            ]
        )
        stride = block
    return levels


def all_levels_of(cp_groups: Iterable[Sequence[int]], sizes: Sequence[int]) -> list[list[Sequence[int]]]:
    """The groups of each level over all CP groups, CP group by CP group, as megatron-core creates them."""
    levels: list[list[Sequence[int]]] = [[] for _ in sizes]
    for ranks in cp_groups:
        for level, groups in zip(levels, levels_of(ranks, sizes)):
            level.extend(groups)
    return levels


def level_groups_at(ranks: Sequence[int], sizes: Sequence[int], cp_rank: int) -> list[Sequence[int]]:
    """The group of each level that holds the member `cp_rank` of a CP group, in closed form.

    >>> [list(group) for group in level_groups_at(range(8), (4, 2), 5)]
    [[4, 5, 6, 7], [1, 5]]

    Raises:
        HcpError: the product of `sizes` is not the size of the group.
    """
    check_sizes(sizes, len(ranks))
    groups: list[Sequence[int]] = []
    stride = 1
    for size in sizes:
        first = cp_rank - cp_rank // stride % size * stride
        groups.append(ranks[first : first + size * stride : stride])
        stride *= size
    return groups


def level_places_at(sizes: Sequence[int], cp_rank: int) -> list[tuple[int, int]]:
    """(index of its group among the CP group's, position in that group) of a member, level by level.

    >>> level_places_at((4, 2), 5)
    [(1, 1), (1, 1)]
    """
    places = []
    stride = 1
    for size in sizes:
        places.append((cp_rank // (size * stride) * stride + cp_rank % stride, cp_rank // stride % size))
        stride *= size
    return places


def check_sizes(sizes: Sequence[int], cp_size: int) -> None:
    """Returns if the levels cover a CP group of `cp_size` ranks; raises HcpError if not."""
    text = ",".join(map(str, sizes))
    if not sizes or min(sizes) < 1:
        raise HcpError(f"hierarchical sizes [{text}]:", wanted="positive sizes, the inner (a2a) one first")
    if prod(sizes) != cp_size:
        raise HcpError(f"hierarchical sizes [{text}] multiply to {prod(sizes)}:", wanted=f"the cp size, {cp_size}")
