"""Every kind of group at once, and one rank's groups without the lists."""

from __future__ import annotations

import pytest

from megatron_hcp.core.kinds import kinds_at, kinds_of
from megatron_hcp.core.ranks import GROUPS, grids_of
from megatron_hcp.ground.errors import HcpError

LAUNCHES = [
    ({"world_size": 32, "tp": 2, "cp": 8, "ep": 4}, (4, 2)),
    ({"world_size": 96, "tp": 2, "cp": 12, "pp": 2, "ep": 6, "etp": 1}, (2, 3, 2)),
    ({"world_size": 24, "cp": 6, "order": "dp-tp-cp-pp"}, ()),
    ({"world_size": 64, "tp": 2, "gtp": 2, "cp": 4, "pp": 2, "etp": 1}, (2, 2)),
]


@pytest.mark.parametrize(("sizes", "levels"), LAUNCHES)
def test_the_groups_of_every_rank_are_found_in_the_lists(sizes: dict[str, int], levels: tuple[int, ...]) -> None:
    grids = grids_of(**sizes)  # type: ignore[arg-type]
    kinds = kinds_of(grids, levels)
    for rank in range(grids.world_size):
        mine = kinds_at(grids, rank, levels)
        assert [at[:4] for at in mine] == [(kind.name, kind.level, kind.comm, kind.upstream) for kind in kinds]
        for at, kind in zip(mine, kinds):
            assert list(at.ranks) == list(kind.groups[at.group_index])
            assert at.ranks[at.position] == rank


def test_the_levels_follow_the_cp_groups() -> None:
    names = [kind.name for kind in kinds_of(grids_of(8, cp=8), (4, 2))]
    assert names == [*list(GROUPS)[:3], "cp.L0", "cp.L1", *list(GROUPS)[3:]]


def test_only_two_levels_are_a2a_and_p2p() -> None:
    grids = grids_of(8, cp=8)
    assert [kind.comm for kind in kinds_of(grids, (4, 2)) if kind.level is not None] == ["a2a", "p2p"]
    assert [kind.comm for kind in kinds_of(grids, (2, 2, 2)) if kind.level is not None] == [None, None, None]


def test_the_axes_of_a_kind_stand_in_mesh_order() -> None:
    axes = {kind.name: kind.axes for kind in kinds_of(grids_of(32, tp=2, gtp=2, cp=2, pp=2, order="cp-tp-dp-ep-pp"))}
    assert axes["tp-cp"] == ("cp", "tp")
    assert axes["mp"] == ("tp", "gtp", "pp")
    assert {kind.name: kind.axes for kind in kinds_of(grids_of(8, tp=2))}["mp"] == ("tp", "pp")


def test_levels_that_do_not_cover_the_cp_group_are_refused() -> None:
    grids = grids_of(8, cp=4)
    for call in (lambda: kinds_of(grids, (4, 2)), lambda: kinds_at(grids, 0, (4, 2))):
        with pytest.raises(HcpError, match="multiply to 8: wanted the cp size, 4"):
            call()
