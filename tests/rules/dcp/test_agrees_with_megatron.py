"""megatron-core's own scheduler and group builder, as installed, against the verdicts on sizes."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from megatron_hcp.dcp.groups import usable_sizes
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.registry import BY_ID

pytestmark = pytest.mark.torch

LaunchOf = Callable[..., Launch]


def _fires(launch_of: LaunchOf, rule: str, ranks: int, tokens: int, longest: int) -> bool:
    text = (
        f"--hybrid-context-parallel --max-seqlen-per-dp-cp-rank {tokens} --context-parallel-size {ranks} "
        f"--seq-length {longest}"
    )
    report = check_launch(launch_of("mlm", text, f"world_size={ranks} mcore=0.16.1"), [BY_ID[rule]], fixes=False)
    assert not report.not_checked
    return bool(report.findings)


def _groups_of(lengths: list[int], ranks: int, tokens: int) -> set[int]:
    """The group sizes that BalancedCPScheduler gives these sequences."""
    from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler

    scheduler = BalancedCPScheduler(tokens, SimpleNamespace(size=lambda: ranks))
    _, by_rank = scheduler.get_groups_and_subsamples(list(enumerate(lengths)), None)
    return {
        sum(sample in of_rank for of_rank in group)
        for group in by_rank
        for sample in {one for of_rank in group for one in of_rank}
    }


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_dcp006_the_scheduler_asserts_exactly_where_the_longest_sequence_is_refused(
    launch_of: LaunchOf, ranks: int
) -> None:
    tokens = 1024
    for longest in (tokens, tokens * ranks - 1, tokens * ranks, tokens * ranks + 1, 3 * tokens * ranks):
        try:
            _groups_of([longest], ranks, tokens)
            refused = False
        except AssertionError:
            refused = True
        assert _fires(launch_of, "DCP006", ranks, tokens, longest) == refused, longest


@pytest.mark.parametrize("ranks", [6, 12])
def test_dcp007_the_scheduler_chooses_sizes_without_a_group_where_ranks_are_no_power_of_two(
    launch_of: LaunchOf, ranks: int
) -> None:
    largest = 1 << (ranks.bit_length() - 1)
    wide = largest * 1024
    assert largest in _groups_of([wide, 100], ranks, 1024)
    assert largest not in usable_sizes(ranks, "main")
    assert _fires(launch_of, "DCP007", ranks, 1024, wide)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32])
def test_dcp007_powers_of_two_have_a_group_for_every_size_that_is_chosen(launch_of: LaunchOf, ranks: int) -> None:
    draw = random.Random(ranks)
    for _ in range(20):
        lengths = [draw.randint(1, 1024 * ranks) for _ in range(draw.randint(1, 40))]
        assert _groups_of(lengths, ranks, 1024) <= set(usable_sizes(ranks, "main"))
    assert not _fires(launch_of, "DCP007", ranks, 1024, 1024)
