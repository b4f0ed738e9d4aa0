"""DCP007: the sizes that groups can have."""

from __future__ import annotations

import math

from megatron_hcp.dcp.groups import usable_sizes


def test_dcp007_group_sizes_are_those_of_megatron_cores_formula() -> None:
    """Upstream writes [2**i for i in range(int(log2(W)))][1:], and has the group of all ranks besides."""
    for ranks in range(2, 1025, 2):
        upstream = {1, ranks, *[2**i for i in range(int(math.log2(ranks)))][1:]}
        assert set(usable_sizes(ranks, "main")) == upstream
