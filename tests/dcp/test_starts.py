"""A published scheduler whose plan keeps all limits has none that is better than ours."""

from __future__ import annotations

import random

import pytest

from megatron_hcp.cost.model_sizes import ModelSizes
from megatron_hcp.dcp import Cost, Group, MicroBatch, Setup, measure, plan_micro_batches
from megatron_hcp.dcp.policies import measured_plan, peak_tokens, problems
from megatron_hcp.dcp.published import published_micro_batches

# Draws of lab/dcp/shapes.py: code_agents, capped_10 and rl_truncated, for which heights alone find no plan as good
# as dev's; and mixed_sft, whose cheapest groups of any size lie across the nodes; documents, on which dev fills
# ranks with more tokens, once padded, than they may hold.
AGENTS = [9028, 6113, 15605, 31142, 14314, 7919, 9284, 11008, 11350, 4394, 12335, 46260, 16310, 29447, 17820, 5431]
CAPPED = [8192, 6874, 7197, 3483, 1936, 926, 2426, 5928, 5436, 871, 4462, 4232, 5557, 2728, 2302, 1835]
CUT = [2631, 20584, 3754, 20451, 20664, 20843, 20580, 20621, 20612, 20822, 8261, 7334, 20750, 20747, 20863, 20591]
MIXED = [920, 452, 76, 540, 680, 112, 2231, 219, 609, 1331, 195, 132, 1323, 9299, 19442, 153, 73, 91, 314, 37932, 672,
         21251, 1168, 37]  # fmt: skip

DOCUMENTS = [307, 314, 1474, 555, 463, 4992, 659, 295, 1848, 1864, 118431, 2277, 100, 992, 65, 2935, 287, 489, 1655,
             1927, 5223, 90, 73997, 1101, 4579, 3627, 1002, 1357, 146, 194, 301, 1538, 703, 10896, 443, 2137, 3611, 395,
             1357, 154, 567, 1052, 2082, 388, 1637, 47254, 1585, 1050, 453, 497, 3210, 1751, 283, 425, 638, 1844, 178,
             250, 367, 605, 4163, 1376, 454, 173]  # fmt: skip

LLAMA_3_8B = Cost.from_model(ModelSizes(32, 4096, 32, 8, 128, 128, 14336, 32, True, 128256))
LLAMA_2_7B = Cost.from_model(ModelSizes(32, 4096, 32, 32, 128, 128, 11008, 32, True, 32000))


@pytest.mark.parametrize(("lengths", "max_seqlen"), [(AGENTS, 32768), (CAPPED, 8192), (CUT, 8192)])
def test_dev_is_not_better_in_one_number_and_as_good_in_the_others(lengths: list[int], max_seqlen: int) -> None:
    batches = published_micro_batches("dev", lengths, 8, max_seqlen, Cost())
    theirs = measure(batches, lengths, 8, max_seqlen, Setup())[:3]
    ours = plan_micro_batches(lengths, 8, max_seqlen).metrics[:3]
    no_worse = all(other <= own for own, other in zip(ours, theirs))
    assert not (no_worse and any(other < own - 0.03 for own, other in zip(ours, theirs))), (ours, theirs)


def test_a_published_plan_that_only_padding_makes_too_full_leaves_us_no_slower() -> None:
    theirs = measured_plan(
        "dev", published_micro_batches("dev", DOCUMENTS, 32, 8192, Cost()), DOCUMENTS, 32, 8192, Setup(cost=LLAMA_3_8B)
    )
    assert 8192 < peak_tokens(theirs) < 8192 * 1.01
    plan = plan_micro_batches(DOCUMENTS, 32, 8192, cost=LLAMA_3_8B)
    assert not problems(plan)
    assert plan.metrics.estimated_s <= theirs.metrics.estimated_s * 1.01


def test_groups_of_any_size_are_no_slower_than_those_that_divide_a_node() -> None:
    """Three rings of 4 ranks, then one of all 8 of a node beside the four other ranks: no ring leaves its node."""
    lengths = [32768] * 4 + [8192] * 8
    batches = [
        MicroBatch(tuple(Group(4 * k, 4, (k,)) for k in range(3))),
        MicroBatch((Group(0, 8, (3, 4, 5, 6, 7)), *[Group(8 + k, 1, (8 + k,)) for k in range(4)])),
    ]
    plan = plan_micro_batches(lengths, 12, 8192, cost=LLAMA_2_7B, groups="any")
    inside = measure(batches, lengths, 12, 8192, plan.setup)
    assert plan.metrics.estimated_s <= inside.estimated_s * 1.001


def test_groups_of_any_size_are_chosen_by_the_nodes_that_they_come_to_lie_on() -> None:
    """Heads of their own make rings between nodes slow: a plan whose groups fit on 8 + 4 ranks is the faster one."""
    plan = plan_micro_batches(MIXED, 12, 32768, cost=LLAMA_2_7B, groups="any")
    groups = [group for batch in plan.micro_batches for group in batch.groups]
    assert not any(plan.setup.crosses(group.start, group.local_cp_size) for group in groups)
    theirs = measure(published_micro_batches("fcp", MIXED, 12, 32768, Cost()), MIXED, 12, 32768, plan.setup)
    assert plan.metrics.estimated_s <= theirs.estimated_s


def _heavy_tailed(seed: int) -> list[int]:
    """64 lengths with a Pareto tail."""
    draw = random.Random(seed)
    ranks, _ = draw.choice([16, 32]), draw.choice("abc")
    return [max(16, min(int(300 * draw.paretovariate(1.1)), 2048 * ranks)) for _ in range(64)]


def _filling(lengths: list[int], tokens: int) -> list[int]:
    """The lengths, as long in all as so many tokens."""
    found = [max(16, length * 63000 // sum(lengths)) for length in lengths]
    found[found.index(max(found))] += tokens - sum(found)
    return found


@pytest.mark.parametrize(
    ("lengths", "cost"),
    [
        (
            _filling(_heavy_tailed(13), 32 * 2048),
            Cost.from_model(ModelSizes(32, 4096, 32, 8, 128, 128, 14336, 32, True, 128256)),
        ),
        (_heavy_tailed(41), Cost(by_time=True)),
    ],
    ids=["narrower groups would be slower", "wide groups have a price"],
)
def test_by_time_dev_with_64_lengths_on_32_ranks_is_not_faster(lengths: list[int], cost: Cost) -> None:
    setup = Setup(cost=cost, groups="main")
    ours = plan_micro_batches(lengths, 32, 2048, **setup._asdict())
    plan = measured_plan("dev", published_micro_batches("dev", lengths, 32, 2048, cost), lengths, 32, 2048, setup)
    assert problems(plan) == []
    assert ours.metrics.estimated_s <= plan.metrics.estimated_s * (1 + 1e-9)
