"""Process groups of CP: described, complete, refused where the sizes do not fit, and gone when the block ends."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from megatron_hcp.ground.errors import HcpError  # noqa: E402
from megatron_hcp.runtime.groups import GroupBuilder, built_groups  # noqa: E402

pytestmark = pytest.mark.torch


def test_groups_are_built_described_and_destroyed(ranks):
    import torch.distributed as dist

    def work(rank):
        before = built_groups()
        with GroupBuilder(30) as builder:
            levels = builder.build_levels([range(4)], (2, 2))
            dynamic = builder.build_dynamic_cp([range(4)], [2])
            inside = built_groups()
            members = [dist.get_process_group_ranks(group) for group in (*levels, dynamic[2])]
        return members, sorted(set(inside) - set(before)), built_groups() == before

    for rank, (members, descriptions, is_gone) in enumerate(ranks(work)):
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        assert members == [pair, [rank % 2, rank % 2 + 2], pair]
        assert descriptions == [
            "DYNAMIC_DP_CP_GROUP_2",
            "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0",
            "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L1",
        ]
        assert is_gone


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda builder: builder.build_levels([range(4)], (3, 2)), "multiply to 6"),
        (lambda builder: builder.build_levels([range(2)], (2, 1)), "rank [23] is in no CP group"),
        (lambda builder: builder.build_dynamic_cp([range(4)], [3]), "size 3 does not divide the DPxCP size 4"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(ranks, build, message):
    def work(rank):
        with GroupBuilder(30) as builder:
            build(builder)

    with pytest.raises(HcpError, match=message):
        ranks(work)
