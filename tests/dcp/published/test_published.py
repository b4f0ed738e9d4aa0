"""The published schedulers: their plans are the real ones where these run, and hold what their authors promise."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import upstream as dcp_upstream
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.dcp import DEFAULT_COST, Setup
from megatron_hcp.dcp.policies import plan_with, problems
from megatron_hcp.dcp.published import NO_PACKING, PUBLISHED, published_micro_batches, static_size
from megatron_hcp.dcp.published.dev import packing_aware
from megatron_hcp.dcp.published.fcp import flexible
from megatron_hcp.dcp.published.pr5869 import even_parts
from megatron_hcp.dcp.published.static import dp_balanced
from megatron_hcp.ground.errors import HcpError

POLICIES = [name.replace("static:C", "static:2") for name in PUBLISHED]


@pytest.mark.torch
@pytest.mark.upstream
def test_main_is_the_released_scheduler(upstream: Path) -> None:
    """`BalancedCPScheduler` runs, in a process of its own, out of the wheel; it is the same class on main."""
    some = dcp_upstream.cases(150)
    assert dcp_upstream.differences("main", upstream / "megatron-core-0.16.1", some) == []
    assert sum(dcp_upstream.ours("main", case) is not None for case in some) > 100


@pytest.mark.upstream
def test_parts_of_even_work_are_verls(upstream: Path) -> None:
    some = dcp_upstream.cases(150, seed=1)
    assert dcp_upstream.differences("verl", upstream / "verl-0.8.0", some) == []


@pytest.mark.upstream
def test_a_different_scheduler_is_seen(upstream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp_upstream, "even_parts", lambda values, count: [list(range(len(values)))])
    some = [case for case in dcp_upstream.cases(40) if case.parts > 1]
    assert dcp_upstream.differences("verl", upstream / "verl-0.8.0", some) == some


@pytest.mark.parametrize(
    ("lengths", "world_size", "max_seqlen", "wanted"),
    [
        ([6144, 2048], 2, 4096, [[(2, [0, 1])]]),
        ([130] * 5, 8, 100, [[(2, [0]), (2, [1]), (2, [2]), (2, [3])], [(8, [4])]]),
        ([10] * 3, 8, 100, [[(4, [0]), (2, [1]), (2, [2])]]),
        ([50, 50], 14, 100, [[(14, [0, 1])]]),
        ([350, 10, 10], 6, 100, [[(4, [0]), (2, [1, 2])]]),
    ],
)
def test_dev_gives_the_plans_that_its_real_scheduler_gave(
    lengths: list[int], world_size: int, max_seqlen: int, wanted: list[list[tuple[int, list[int]]]]
) -> None:
    plan = packing_aware(lengths, world_size, max_seqlen)
    assert [[size for size, _ in batch] for batch in plan] == [[size for size, _ in batch] for batch in wanted]
    assert sorted(i for batch in plan for _, samples in batch for i in samples) == list(range(len(lengths)))


@given(
    st.lists(st.integers(1, 2000), min_size=1, max_size=60),
    st.sampled_from([2, 4, 8, 16]),
    st.sampled_from(POLICIES),
)
def test_every_sequence_runs_once_and_every_rank_has_work(lengths: list[int], world_size: int, policy: str) -> None:
    try:
        batches = published_micro_batches(policy, lengths, world_size, 1024, DEFAULT_COST)
    except HcpError:
        # Static groups of two need a sequence for each group of each micro-batch.
        assert policy.startswith("static")
        return
    assert sorted(i for batch in batches for group in batch.groups for i in group.samples) == list(range(len(lengths)))
    for batch in batches:
        assert [rank for group in batch.groups for rank in group.ranks] == list(range(world_size))
        for group in batch.groups:
            assert group.samples
            tokens = [lengths[i] for i in group.samples]
            held = max(tokens) if policy in NO_PACKING else sum(tokens)
            assert policy == "pr5869" or held <= group.local_cp_size * 1024


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=4), st.integers(5, 9))
def test_fcp_has_the_fastest_slowest_group_that_any_number_of_ranks_gives(lengths: list[int], world_size: int) -> None:
    """The paper's dynamic programme searches all divisions of the ranks; so does this."""
    for batch in flexible(lengths, world_size, 1000, float):
        least = [max(1, -(-max(lengths[i] for i in samples) // 1000)) for _, samples in batch]
        works = [sum(lengths[i] for i in samples) for _, samples in batch]
        divisions = [
            sizes for sizes in product(*(range(size, world_size + 1) for size in least)) if sum(sizes) == world_size
        ]
        best = min(max(work / size for work, size in zip(works, sizes)) for sizes in divisions)
        assert max(work / size for work, (size, _) in zip(works, batch)) == pytest.approx(best)


def test_fcp_packs_where_the_least_room_is_left() -> None:
    assert flexible([900, 700, 90], 2, 1000, float) == [[(1, [0, 2]), (1, [1])]]


def test_static_packs_hold_no_token_more_than_their_ranks() -> None:
    assert dp_balanced([512, 512, 1], 1, 1024, 1) == [[(1, [0, 1])], [(1, [2])]]


def test_where_nothing_is_packed_each_sequence_is_a_forward_pass() -> None:
    """Four sequences of 900 on two ranks: one barrier, two passes, each rank filled to 900 of 1000."""
    plan = plan_with("main", [900] * 4, 2, 1000, Setup())
    machine = plan.setup.cost.machine
    assert (len(plan.micro_batches), plan.metrics.num_micro_batches) == (1, 2)
    assert plan.metrics.token_fill == pytest.approx(0.9)
    assert plan.metrics.estimated_s == pytest.approx(
        2 * (plan.setup.cost.work(900) * machine.unit_s + machine.micro_batch_s)
    )
    assert problems(plan) == []


def test_parts_differ_by_no_more_than_the_largest_value() -> None:
    values = [((i * 7919) % 101) + 1 for i in range(60)]
    sums = [sum(values[i] for i in part) for part in even_parts(values, 7)]
    assert sum(sums) == sum(values) and max(sums) - min(sums) <= max(values)


@pytest.mark.parametrize(
    ("policy", "lengths", "world_size", "says"),
    [
        ("dev", [9000], 8, "sequence 0 has 9000 tokens and needs 16 ranks"),
        ("dev", [3500, 100, 100], 6, "gives ranks 0 to 3 to one group, which has no process group on 6 ranks"),
        ("main", [3500, 100, 100], 6, "gives ranks 0 to 3 to one group"),
        ("fcp", [9000], 8, "needs 9 ranks"),
        ("static:3", [10] * 8, 8, "8 ranks have no groups of 3; give a divisor of 8"),
        ("static:2", [10] * 3, 8, "3 sequences cannot give each of 4 groups one"),
        ("static:2", [10] * 4 + [3000], 8, "sequence 4 has 3000 tokens, more than 2 ranks"),
        ("static:x", [10], 8, "found .static:x.; wanted static:C"),
        ("best", [10], 8, "found 'best'; wanted one of dev, main"),
        ("pr5869", [9000], 8, "needs 16 ranks"),
    ],
)
def test_what_a_scheduler_cannot_plan_is_said(policy: str, lengths: list[int], world_size: int, says: str) -> None:
    with pytest.raises(HcpError, match=says):
        published_micro_batches(policy, lengths, world_size, 1024, DEFAULT_COST)


def test_a_static_size_holds_the_longest_sequence_and_divides_the_ranks() -> None:
    assert [static_size([length], 12, 1000) for length in (1, 1001, 4001, 6001, 12001)] == [1, 2, 6, 12, None]
