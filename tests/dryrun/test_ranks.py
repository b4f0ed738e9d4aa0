"""Which ranks are run: upstream's mesh is tp, cp, dp, pp, the fastest first."""

from __future__ import annotations

import pytest

from megatron_hcp.core.ranks import grids_of
from megatron_hcp.dryrun.ranks import Sizes, environment_of, ranks_of, world_of
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions, load_launch

SIZES = Sizes(tp=2, pp=4, cp=2)


def test_auto_takes_the_first_a_middle_and_the_last_stage() -> None:
    assert [SIZES.role(32, rank) for rank in ranks_of("auto", SIZES, 32)] == [
        "pipeline stage 0, CP rank 0, TP rank 0",
        "pipeline stage 2, CP rank 0, TP rank 0",
        "pipeline stage 3, CP rank 1, TP rank 1",
    ]


def test_all_roles_takes_both_ends_of_cp_and_tp_in_each_of_three_stages() -> None:
    ranks = ranks_of("all-roles", SIZES, 32)
    assert len(set(ranks)) == 12 and max(ranks) < 32


def test_a_rank_lies_in_the_groups_that_its_role_names() -> None:
    grids = grids_of(32, tp=2, cp=2, pp=4)
    rank = SIZES.rank(32, stage=3, cp_rank=1, tp_rank=1)
    for name, place in (("tp", 1), ("cp", 1), ("pp", 3)):
        assert grids.groups(name).position_of(rank) == place


def test_a_world_that_the_sizes_do_not_divide_is_left_to_upstream() -> None:
    assert ranks_of("auto", SIZES, 30) == (0,)


@pytest.mark.parametrize("text", ["", "8", "-1", "a", "0,8", "1e3", "0" * 20, ",".join(["0"] * 65)])
def test_what_is_no_rank_is_an_error(text: str) -> None:
    with pytest.raises(HcpError, match="--ranks"):
        ranks_of(text, Sizes(1, 1, 1), 8)


@pytest.mark.parametrize(
    ("words", "assume", "world"),
    [
        ("--tensor-model-parallel-size 2 --context-parallel-size 4", "", (8, False)),
        ("--tensor-model-parallel-size 2 --expert-model-parallel-size 8 --num-experts 8", "", (16, False)),
        ("--tensor-model-parallel-size 2", "world_size=64", (64, True)),
    ],
)
def test_the_smallest_world_is_presumed_unless_one_is_stated(words: str, assume: str, world: tuple[int, bool]) -> None:
    launch = load_launch("", LoadOptions(dialect="mlm", words=tuple(words.split()), assumes=(assume,)))
    assert world_of(launch) == world


def test_a_launch_sets_its_own_variables_and_none_of_the_runs() -> None:
    facts = {"env.NCCL_DEBUG": "INFO", "env.HOME": "/root", "env.HF_HOME": "/models", "env.EMPTY": "", "tp": 2}
    assert environment_of(facts) == {"NCCL_DEBUG": "INFO"}
