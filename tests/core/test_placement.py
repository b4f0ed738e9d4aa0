"""Nodes and NVLink domains of ranks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.core.placement import Placement, crosses, places_of
from megatron_hcp.core.ranks import RankMesh
from megatron_hcp.ground.errors import HcpError

worlds = st.tuples(st.integers(1, 200), st.integers(1, 16), st.sampled_from(["block", "cyclic"]))


@given(worlds)
def test_no_node_gets_more_ranks_than_gpus_and_no_gpu_two_ranks(case: tuple[int, int, str]) -> None:
    world_size, gpus_per_node, kind = case
    place = Placement(world_size, gpus_per_node, kind=kind)
    slots = [place.slot_of(rank) for rank in range(world_size)]
    assert len(set(slots)) == world_size
    assert max(Counter(place.nodes()).values()) <= gpus_per_node
    assert set(place.nodes()) == set(range(place.num_nodes))


def test_cyclic_deals_ranks_out_like_cards() -> None:
    assert Placement(8, 4, kind="block").nodes() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert Placement(8, 4, kind="cyclic").nodes() == [0, 1, 0, 1, 0, 1, 0, 1]


def test_a_domain_may_be_larger_or_smaller_than_a_node() -> None:
    assert Placement(16, 4, 8).domains() == [0] * 8 + [1] * 8
    assert Placement(8, 8, 4).domains() == [0] * 4 + [1] * 4
    assert Placement(8, 4, 2, "cyclic").domains() == [0, 2, 0, 2, 1, 3, 1, 3]


@given(worlds, st.integers(1, 6), st.integers(1, 6))
def test_a_group_crosses_exactly_if_it_touches_two_nodes(case: tuple[int, int, str], inner: int, middle: int) -> None:
    world_size, gpus_per_node, kind = case
    mesh = RankMesh({"a": inner, "b": middle, "c": world_size})
    nodes = Placement(mesh.world_size, gpus_per_node, kind=kind).nodes()
    for axes in (("a",), ("b",), ("a", "b"), ("a", "c")):
        for group in mesh.groups(*axes)[:50]:
            touched = {nodes[rank] for rank in list(group)}
            assert places_of(group, nodes) == touched
            assert crosses(group, nodes) == (len(touched) > 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((8, 0), "gpus_per_node is 0: wanted a size of 1 or more"),
        ((8, 8, -1), "nvlink_domain is -1: wanted a size of 1 or more"),
        ((8, 8, 8, "plane"), "placement plane: wanted block or cyclic"),
    ],
)
def test_impossible_placements_are_refused(arguments: tuple[int, ...], said: str) -> None:
    with pytest.raises(HcpError) as error:
        Placement(*arguments)  # type: ignore[arg-type]
    assert str(error.value) == said
