"""The rank mesh: closed form against enumeration, and what megatron-core would refuse."""

from __future__ import annotations

import itertools
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.core.ranks import GROUPS, RankMesh, grids_of, smallest_world_size
from megatron_hcp.ground.errors import HcpError

meshes = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(
    lambda sizes: RankMesh({f"axis{i}": size for i, size in enumerate(sizes)})
)


@st.composite
def mesh_and_axes(draw: st.DrawFn) -> tuple[RankMesh, tuple[str, ...]]:
    mesh = draw(meshes)
    return mesh, tuple(draw(st.lists(st.sampled_from(list(mesh.sizes)), unique=True)))


def enumerated(mesh: RankMesh, axes: tuple[str, ...]) -> list[list[int]]:
    """Groups by definition: ranks that agree on all other axes, found by looking at every rank."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank in range(mesh.world_size):
        place = mesh.coordinates(rank)
        groups.setdefault(tuple(at for axis, at in place.items() if axis not in axes), []).append(rank)
    return sorted(groups.values())


@given(mesh_and_axes())
def test_groups_are_the_ranks_that_agree_on_all_other_axes(case: tuple[RankMesh, tuple[str, ...]]) -> None:
    mesh, axes = case
    assert mesh.groups(*axes).lists() == enumerated(mesh, axes)


@given(mesh_and_axes())
def test_lazy_groups_and_listed_groups_are_the_same(case: tuple[RankMesh, tuple[str, ...]]) -> None:
    mesh, axes = case
    groups = mesh.groups(*axes)
    listed = groups.lists()
    assert [list(group) for group in groups] == listed
    assert [[group[i] for i in range(len(group))] for group in groups] == listed
    assert [list(groups[i]) for i in range(len(groups))] == listed
    assert {len(group) for group in groups} == {groups.group_size}


@given(mesh_and_axes())
def test_the_closed_form_of_a_rank_is_its_group_in_the_list(case: tuple[RankMesh, tuple[str, ...]]) -> None:
    mesh, axes = case
    groups = mesh.groups(*axes)
    listed = groups.lists()
    for rank in range(mesh.world_size):
        group = listed[groups.index_of(rank)]
        assert list(groups.of(rank)) == group
        assert group[groups.position_of(rank)] == rank


def test_a_groups_slice_is_a_slice_of_the_list() -> None:
    groups = RankMesh({"tp": 2, "cp": 3, "dp": 2}).groups("tp", "dp")
    assert [list(group) for group in groups[1:]] == groups.lists()[1:]
    assert list(groups[0][1:3]) == groups.lists()[0][1:3]


def test_the_groups_of_every_name_partition_the_world_in_every_order_with_pp_last() -> None:
    for order in itertools.permutations(("tp", "cp", "ep", "dp")):
        grids = grids_of(144, tp=2, cp=3, ep=4, etp=3, pp=2, order="-".join(order) + "-pp")
        for name in GROUPS:
            members = sorted(itertools.chain.from_iterable(grids.groups(name)))
            assert members == list(range(144)), (order, name)


def test_cp_is_the_dense_axis_and_ep_spreads_over_cp_and_dp() -> None:
    grids = grids_of(16, tp=2, cp=4, ep=4)
    assert grids.groups("cp").lists() == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
    assert grids.groups("ep").lists() == grids.groups("cp").lists()
    assert grids.groups("dp").lists()[0] == [0, 8]


def test_weight_shards_lie_between_tp_and_cp() -> None:
    grids = grids_of(16, tp=2, gtp=2, cp=2, pp=2)
    assert grids.groups("cp").lists()[0] == [0, 4]
    assert grids.groups("mp").lists()[0] == [0, 1, 2, 3, 8, 9, 10, 11]
    named = grids_of(16, gtp=2, cp=2, order="tp-cp-gtp_remat-dp")
    assert (named.groups("cp").lists()[0], named.groups("mp").lists()[0]) == ([0, 1], [0, 2])


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.integers(1, 4))
def test_the_smallest_world_is_the_first_that_is_accepted(tp: int, cp: int, ep: int, etp: int, pp: int) -> None:
    smallest = smallest_world_size(tp * cp * pp, etp * ep * pp)
    step = tp * cp * pp
    for world_size in range(step, smallest, step):
        with pytest.raises(HcpError, match="not a multiple of etp"):
            grids_of(world_size, tp=tp, cp=cp, ep=ep, etp=etp, pp=pp)
    assert grids_of(smallest, tp=tp, cp=cp, ep=ep, etp=etp, pp=pp).world_size == smallest


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (
            {"world_size": 6, "tp": 4},
            "world_size 6 is not a multiple of tp 4 x cp 1 x pp 1 = 4: no data-parallel size "
            "fits; use 4 or 8 ranks, or other sizes",
        ),
        (
            {"world_size": 12, "tp": 2, "cp": 3, "ep": 8, "etp": 1},
            "world_size 12 is not a multiple of etp 1 x ep 8 x pp 1 = 8 (the expert grid, which has no cp axis); "
            "use 24 ranks, or other sizes",
        ),
        ({"world_size": 8, "tp": 0}, "tp is 0: wanted a size of 1 or more"),
        (
            {"world_size": 8, "cp": 2, "pp": 2, "order": "tp-cp-ep-pp-dp"},
            "order tp-cp-ep-pp-dp does not end with pp, so dp 2 and the experts' dp 4 must be equal: make etp x ep "
            "(now 1) equal to tp x cp (now 2), or put pp last",
        ),
        (
            {"world_size": 8, "tp": 2, "pp": 2, "ep": 2, "etp": 1, "order": "tp-pp-cp-ep-dp"},
            "order tp-pp-cp-ep-dp gives the dense and the expert grid different pipeline groups (rank strides 2 and "
            "1): put pp last",
        ),
        (
            {"world_size": 8, "cp": 2, "order": "tp-dp-pp"},
            "order tp-dp-pp lacks cp, whose size is 2: name every axis of size above 1",
        ),
        # Upstream puts gtp after tp, and fails (ValueError) on an order without tp.
        (
            {"world_size": 8, "gtp": 2, "order": "cp-dp"},
            "order cp-dp lacks gtp, whose size is 2: name every axis of size above 1",
        ),
        (
            {"world_size": 8, "order": "tp-cp-tp"},
            "order tp-cp-tp names an axis twice: name each once, for example tp-cp-ep-dp-pp",
        ),
        (
            {"world_size": 8, "order": "tp,cp"},
            "order tp,cp: wanted the axes tp, cp, ep, dp, pp joined by '-', for example tp-cp-ep-dp-pp",
        ),
    ],
)
def test_what_megatron_core_refuses_is_one_line(sizes: dict[str, int], said: str) -> None:
    with pytest.raises(HcpError) as error:
        grids_of(**sizes)  # type: ignore[arg-type]
    assert str(error.value) == said


def test_a_rank_of_a_huge_world_needs_no_enumeration() -> None:
    grids = grids_of(10**12, tp=8, cp=1000, pp=10)
    group = grids.groups("cp").of(10**12 - 1)
    assert (len(group), group[0], group[-1]) == (1000, 10**12 - 8 * 999 - 1, 10**12 - 1)
    members = grids.groups("dp-cp").of(123_456_789)
    assert len(members) == 10**12 // 80
    assert prod([len(members), len(grids.groups("dp-cp"))]) == 10**12
