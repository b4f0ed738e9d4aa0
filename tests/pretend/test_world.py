"""The groups of a large world: the same as upstream's own function makes, one by one."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

CASES = [
    ([2, 4, 1, 3, 2], [True, False, False, True, False]),
    ([2, 2, 2, 2, 2], [False, True, False, False, True]),
    ([1, 8, 1, 2, 3], [True, True, True, True, True]),
    ([4, 1, 2, 3, 1], [False, False, False, False, False]),
]


@pytest.mark.parametrize(("sizes", "masks"), CASES)
def test_groups_and_their_order_are_upstreams(sizes: list[int], masks: list[bool]) -> None:
    from math import prod

    from megatron.core.parallel_state import generate_masked_orthogonal_rank_groups

    from megatron_hcp.pretend.stand_ins.world import rank_groups

    world = prod(sizes)
    every = generate_masked_orthogonal_rank_groups(world, sizes, masks)
    assert rank_groups(world, sizes, masks) == every
    for rank in (0, world // 2, world - 1):
        assert rank_groups(world, sizes, masks, of=rank) == [ranks for ranks in every if rank in ranks]
