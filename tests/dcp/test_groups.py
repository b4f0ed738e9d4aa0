"""Which groups of ranks exist: our rule against the groups that the installed megatron-core makes."""

from __future__ import annotations

import pytest

from megatron_hcp.dcp import is_usable, usable_sizes
from megatron_hcp.ground.errors import HcpError


@pytest.mark.parametrize(
    "world_size, sizes",
    [
        (2, (1, 2)), (4, (1, 2, 4)), (6, (1, 2, 6)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 12)),
        (96, (1, 2, 4, 8, 16, 32, 96)),
    ],
)  # fmt: skip
def test_main_makes_powers_of_two_up_to_half_and_the_whole(world_size: int, sizes: tuple[int, ...]) -> None:
    assert usable_sizes(world_size, "main") == sizes
    assert usable_sizes(world_size, "dev") == sizes


def test_the_targets_agree_on_powers_of_two() -> None:
    for power in range(10):
        all_powers = tuple(1 << k for k in range(power + 1))
        assert usable_sizes(1 << power, "main") == usable_sizes(1 << power, "pow2") == all_powers


@pytest.mark.parametrize("target", ["main", "dev"])
def test_an_odd_number_of_ranks_has_groups_only_in_pow2(target: str) -> None:
    with pytest.raises(HcpError, match=r"found 7 ranks.*groups=pow2"):
        usable_sizes(7, target)
    assert usable_sizes(7, "pow2") == (1, 2, 4, 7)
    assert usable_sizes(1, target) == (1,)


@pytest.mark.parametrize("world_size", [0, -2, True, 2.0, None, "8"])
def test_no_number_of_ranks_is_an_error(world_size: object) -> None:
    with pytest.raises(HcpError, match="world_size"):
        usable_sizes(world_size)  # type: ignore[arg-type]


def test_an_unknown_target_is_an_error() -> None:
    with pytest.raises(HcpError, match="found 'mainn'; wanted one of main, dev, pow2"):
        usable_sizes(8, "mainn")


@pytest.mark.torch
@pytest.mark.parametrize("world_size", [2, 4, 6, 8, 10, 12, 14, 16, 24, 48, 64, 80, 96, 100])
def test_megatron_core_makes_exactly_the_groups_that_main_allows(
    world_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`create_hybrid_dp_cp_groups` runs as each rank; creating a group is replaced by writing its ranks down."""
    from megatron.core import parallel_state

    monkeypatch.setattr(parallel_state, "create_group", lambda ranks, **_: tuple(ranks))
    ranks = list(range(world_size))
    for rank in ranks:
        made = parallel_state.create_hybrid_dp_cp_groups(rank, ranks, None)
        # A group of its own needs no process group, and the whole is the DPxCP group: both always exist.
        complete = {size: group for size, group in made.items() if len(group) == size}
        ours = {
            size: tuple(range(rank - rank % size, rank - rank % size + size))
            for size in usable_sizes(world_size, "main")[1:-1]
            if is_usable(rank - rank % size, size, world_size, "main")
        }
        assert complete == ours, rank
