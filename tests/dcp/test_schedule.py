"""Policy balanced: what holds of every plan, for every number of ranks and any lengths that fit."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from megatron_hcp.dcp import Cost, Plan, plan_micro_batches, usable_sizes
from megatron_hcp.ground.errors import HcpError
from support.rows import rows
from support.selection import examples

Faults = Callable[..., list[str]]


def random_lengths(chance: random.Random, count: int, longest: int) -> list[int]:
    """Lengths up to `longest` in one of six shapes: even, all alike, two humps, long tail, halvings, one outlier."""
    shape = chance.randrange(6)
    if shape == 0:
        return [chance.randint(1, longest) for _ in range(count)]
    if shape == 1:
        return [chance.choice([1, longest, max(1, longest // 2), max(1, longest // 3)])] * count
    if shape == 2:
        long = [chance.uniform(0.5, 1) if chance.random() < 0.2 else 0.03 for _ in range(count)]
        return [max(1, int(longest * part)) for part in long]
    if shape == 3:
        return [max(1, min(longest, int(chance.lognormvariate(0, 1.3) * longest / 20))) for _ in range(count)]
    if shape == 4:
        return [max(1, longest // (1 << chance.randrange(8)) + chance.randint(-1, 0)) for _ in range(count)]
    return [longest] + [chance.randint(1, max(1, longest // 50)) for _ in range(count - 1)]


def fitting(world_size: int, most: int, align: int) -> int:
    """The longest sequence that fits on all ranks."""
    if world_size == 1:
        return most // align * align
    return most // (2 * align) * 2 * align * world_size


def test_any_plan_keeps_every_promise(faults: Faults) -> None:
    """Any W up to 40, now and then up to 512; every target; TP; costs; few and many sequences."""
    chance = random.Random(20)
    for case in range(examples(quick=30, full=2000)):
        world_size = chance.randint(1, 512) if case % 40 == 0 else chance.randint(1, 40)
        target = chance.choice(["main", "dev", "pow2"]) if world_size % 2 == 0 else "pow2"
        tp = chance.choice([1, 1, 2, 8])
        sequence_parallel = chance.random() < 0.7
        align = tp if sequence_parallel else 1
        most = chance.choice([2 * align, 100, 1000, 8192]) if tp == 1 else chance.choice([2 * align, 160, 8192])
        longest = max(1, int(fitting(world_size, most, align) * chance.choice([1, 0.6, 0.1, 0.02])))
        lengths = random_lengths(chance, chance.choice([1, 2, 3, 5, 9, 20, 40]), longest)
        cost = chance.choice([Cost(), Cost(comm=0.0), Cost(linear=0.0), Cost(quadratic=0.0), Cost(comm=1e6)])
        plan = plan_micro_batches(
            lengths, world_size, most, cost=cost, tp=tp, sequence_parallel=sequence_parallel, groups=target
        )
        assert faults(plan, target, align, cost) == [], (case, world_size, target, tp, most, lengths)


@pytest.mark.parametrize("target, world_sizes", [("main", range(2, 513, 2)), ("pow2", range(1, 513))])
def test_every_number_of_ranks_up_to_512_has_a_plan(target: str, world_sizes: range, faults: Faults) -> None:
    chance = random.Random(target)
    for world_size in chance.sample(world_sizes, examples(quick=8, full=len(world_sizes))):
        longest = fitting(world_size, 4096, 1)
        count = chance.choice([1, 4, 10, world_size // 10 + 1])
        lengths = [longest, *random_lengths(chance, count, min(longest, 60000))]
        plan = plan_micro_batches(lengths, world_size, 4096, groups=target)
        assert faults(plan, target) == [], (world_size, lengths)


@pytest.mark.sample(6)
@pytest.mark.parametrize("world_size", [6, 12, 24, 48, 80, 96])
def test_numbers_of_ranks_that_upstream_schedulers_fail_on(world_size: int, faults: Faults) -> None:
    chance = random.Random(world_size)
    for count in (3, 64, 500):
        lengths = [max(16, int(chance.gauss(24000, 4000) if chance.random() < 0.2 else 1000)) for _ in range(count)]
        for target in ("main", "pow2"):
            plan = plan_micro_batches(lengths, world_size, 8192, groups=target)
            assert faults(plan, target) == []


def test_the_plan_does_not_depend_on_the_process_or_on_when_it_is_made() -> None:
    lengths = random_lengths(random.Random(3), 300, 40000)
    plans = {repr(plan_micro_batches(list(lengths), 24, 8192)) for _ in range(3)}
    assert len(plans) == 1


def test_the_order_of_the_sequences_changes_only_their_numbers() -> None:
    lengths = random.Random(4).sample(range(100, 50000), 200)
    turned = lengths[::-1]

    def by_length(plan: Plan) -> list[list[tuple[int, list[int]]]]:
        return [
            [(group.start, sorted(plan.lengths[i] for i in group.samples)) for group in batch.groups]
            for batch in plan.micro_batches
        ]

    assert by_length(plan_micro_batches(lengths, 32, 8192)) == by_length(plan_micro_batches(turned, 32, 8192))


def test_an_outlier_gets_a_micro_batch_of_its_own_on_all_ranks() -> None:
    plan = plan_micro_batches([1024] * 1000 + [131072], 32, 8192)
    (alone,) = [batch for batch in plan.micro_batches if any(1000 in group.samples for group in batch.groups)]
    assert [group.local_cp_size for group in alone.groups] == [32]
    assert plan.metrics.imbalance < 1.02


@pytest.mark.parametrize("count", [64, 640])
def test_sequences_that_fill_half_a_rank_each_keep_to_their_smallest_group(count: int) -> None:
    """No two fit on one rank, so that more micro-batches are needed than tokens ask for: 1.6 times as many."""
    metrics = plan_micro_batches([5000] * count, 8, 8192).metrics
    assert (metrics.num_micro_batches, metrics.mean_cp_over_min, metrics.imbalance) == (count // 8, 1.0, 1.0)


def test_one_sequence_runs_on_all_ranks() -> None:
    for world_size in (1, 2, 6, 7, 64, 100):
        (batch,) = plan_micro_batches([500], world_size, 8192).micro_batches
        assert [(list(group.ranks), group.samples) for group in batch.groups] == [(list(range(world_size)), (0,))]


@pytest.mark.slow
def test_padding_counts_against_max_seqlen(faults: Faults) -> None:
    """1,000 sequences of 17 tokens pad to 24 with TP 8 on one rank, so that two fit there, and to 32 on two ranks."""
    padded = plan_micro_batches([17] * 1000, 4, 64, tp=8)
    assert faults(padded, align=8) == []
    assert 125 <= padded.metrics.num_micro_batches <= 128
    unpadded = plan_micro_batches([17] * 1000, 4, 64, tp=8, sequence_parallel=False)
    assert faults(unpadded) == []
    assert unpadded.metrics.num_micro_batches < padded.metrics.num_micro_batches


@pytest.mark.parametrize("target", ["main", "pow2"])
def test_a_sequence_that_does_not_fit_is_named_with_what_would_do(target: str) -> None:
    chance = random.Random(target)
    for _ in range(examples(quick=12, full=300)):
        world_size, tp = chance.choice([1, 2, 6, 8, 12, 64]), chance.choice([1, 2, 8])
        most = chance.randint(1, 3000)
        longest = chance.randint(1, 4) * fitting(world_size, most, tp) + chance.randint(1, 500)
        lengths = [5, longest, 7]
        with pytest.raises(HcpError) as caught:
            plan_micro_batches(lengths, world_size, most, tp=tp, groups=target)
        text = str(caught.value)
        assert f"sequence 1 has {longest} tokens" in text and "\n" not in text
        advice = dict(re.findall(r"(max_seqlen|world_size) to (\d+)", text))
        enough = int(advice["max_seqlen"])
        plan_micro_batches([longest], world_size, enough, tp=tp, groups=target)
        with pytest.raises(HcpError):
            plan_micro_batches([longest], world_size, enough - 1, tp=tp, groups=target)
        if "world_size" in advice:
            ranks = int(advice["world_size"])
            plan_micro_batches([longest], ranks, most, tp=tp, groups=target)
            fewer = ranks - (1 if target == "pow2" or ranks == 2 else 2)
            if fewer >= 1:
                with pytest.raises(HcpError):
                    plan_micro_batches([longest], fewer, most, tp=tp, groups=target)
        else:
            assert most < 2 * tp


@pytest.mark.parametrize(
    "bad", [0, -1, True, False, None, 1.0, "7", 1 << 60, float("nan"), [3]], ids=lambda bad: repr(bad)[:12]
)
def test_a_length_that_is_none_is_named(bad: object) -> None:
    with pytest.raises(HcpError, match="sequence 2 has length"):
        plan_micro_batches([10, 20, bad, 30], 8, 1024)  # type: ignore[list-item]


def test_no_sequences_are_an_error() -> None:
    with pytest.raises(HcpError, match="no sequences"):
        plan_micro_batches([], 8, 1024)


@rows("bad", [0, -8, True, None, 2.5, "8", 1 << 80])
@rows("name", ["world_size", "max_seqlen", "tp"])
def test_a_count_that_is_none_is_named(name: str, bad: object) -> None:
    values = {"world_size": 8, "max_seqlen": 1024, "tp": 1, name: bad}
    with pytest.raises(HcpError, match=f"^{name}: found"):
        plan_micro_batches([10], values["world_size"], values["max_seqlen"], tp=values["tp"])  # type: ignore[arg-type]


def test_a_max_seqlen_below_the_padding_is_an_error_with_the_least_that_works() -> None:
    with pytest.raises(HcpError, match="raise it to 16"):
        plan_micro_batches([8] * 64, 8, 15, tp=8)
    assert plan_micro_batches([8] * 64, 8, 16, tp=8).metrics.num_micro_batches == 4


@pytest.mark.sample(3)
@pytest.mark.parametrize("world_size", [8, 32, 64])
def test_even_load_costs_little_where_sequences_are_many(world_size: int) -> None:
    """The targets of the benchmark, with room for chance, on cells that plan in a moment."""
    chance = random.Random(world_size)
    lengths = [
        min(60000, int(chance.uniform(100, 1000) + chance.lognormvariate(8.294, 1))) for _ in range(32 * world_size)
    ]
    metrics = plan_micro_batches(lengths, world_size, 16384).metrics
    assert metrics.imbalance <= 1.04
    assert metrics.mean_cp_over_min <= 1.10
    needed = -(-sum(lengths) // (world_size * 16384))
    assert needed <= metrics.num_micro_batches <= 1.35 * needed


def test_sizes_without_a_process_group_are_not_used() -> None:
    def sizes(target: str) -> set[int]:
        plan = plan_micro_batches([20000] * 40 + [8000] * 400, 24, 4096, groups=target)
        return {group.local_cp_size for batch in plan.micro_batches for group in batch.groups}

    assert sizes("main") <= set(usable_sizes(24, "main")) == {1, 2, 4, 8, 24}
    assert sizes("pow2") <= set(usable_sizes(24, "pow2")) == {1, 2, 4, 8, 16, 24}


def test_a_broken_plan_is_seen_by_the_check(faults: Faults) -> None:
    """The negative control of this file: each promise, broken once."""
    plan = plan_micro_batches([3000, 900, 900, 100, 100], 4, 1024)
    assert faults(plan) == []
    first = plan.micro_batches[0]
    group = first.groups[0]

    def broken(**changes: object) -> list[str]:
        batch = first._replace(groups=(group._replace(**changes), *first.groups[1:]))  # type: ignore[arg-type]
        return faults(plan._replace(micro_batches=(batch, *plan.micro_batches[1:])))

    assert any("missing or placed twice" in text for text in broken(samples=(*group.samples, 1)))
    assert any("no work" in text for text in broken(samples=()))
    assert any("ranks [" in text for text in broken(local_cp_size=3))
    assert any("no process group" in text for text in broken(local_cp_size=3))
    assert any("more than M" in text for text in faults(plan._replace(max_seqlen_per_rank=700)))
    wider = plan._replace(max_seqlen_per_rank=4096, lengths=(3000, 900, 900, 9000, 1))
    assert any("would do" in text for text in faults(wider))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "world_size, count, capped, limit",
    [(256, 992, 0.9, 1.3 * 1.07), (512, 1984, 1.0, 1.3 * 1.04), (8, 7, 1.0, 8 / 7), (64, 250, 0.5, 1.3 * 1.04)],
)
def test_ranks_that_equal_lengths_leave_idle_do_not_collapse_into_one_group(
    world_size: int, count: int, capped: float, limit: float, faults: Faults
) -> None:
    """Rollouts at the cap, k * W - r of them: r groups of two ranks would do, or groups of the short ones."""
    chance = random.Random(world_size)
    lengths = [8192 if i < capped * count else chance.randint(200, 8000) for i in range(count)]
    plan = plan_micro_batches(lengths, world_size, 8192)
    assert plan.metrics.mean_cp_over_min <= limit
    assert faults(plan) == []
