"""The loss multipliers, against an exact simulation of what the ranks of DPxCP back-propagate.

Everything is in fractions: a wrong multiplier is off by a ratio, never by rounding.
"""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import accumulate, pairwise

import pytest

from megatron_hcp.dcp import Plan, plan_micro_batches
from megatron_hcp.dcp.normalize import loss_weights, real_tokens_of_rank
from megatron_hcp.dcp.setup import Setup
from megatron_hcp.ground.errors import HcpError

GATHERS = ["detached", "autograd", "replicated"]
Vector = tuple[Fraction, Fraction]


class Toy:
    """A model with two parameters; the loss sum of a group is (sum_c x_c)**2, so that no shard has a part of its own.

    x_c = sum_j k[c][j] . theta: the scores of shard c need keys that rank j owns; gradients of those go to rank j.
    """

    def __init__(self, chance: random.Random) -> None:
        self.theta = (Fraction(chance.randint(1, 9)), Fraction(chance.randint(1, 9)))
        self.chance = chance

    def group(self, size: int) -> list[list[Vector]]:
        def one() -> Fraction:
            return Fraction(self.chance.randint(1, 9))

        return [[(one(), one()) for _ in range(size)] for _ in range(size)]

    def loss(self, keys: list[list[Vector]]) -> Fraction:
        return sum((self.dot(key) for row in keys for key in row), Fraction(0)) ** 2

    def dot(self, key: Vector) -> Fraction:
        return key[0] * self.theta[0] + key[1] * self.theta[1]

    def gradient(self, keys: list[list[Vector]]) -> Vector:
        slope = 2 * sum((self.dot(key) for row in keys for key in row), Fraction(0))
        return total((slope * key[0], slope * key[1]) for row in keys for key in row)

    def gradient_on_rank(self, keys: list[list[Vector]], rank: int, gather: str) -> Vector:
        """What this rank of the group holds after its backward pass of the group's loss, multiplier 1."""
        if gather == "replicated":
            return self.gradient(keys)
        slope = 2 * sum((self.dot(key) for row in keys for key in row), Fraction(0))
        # detached: each x_c gets the cotangent of its own rank; autograd: those of all ranks, added up.
        injected = slope * (len(keys) if gather == "autograd" else 1)
        return total((injected * row[rank][0], injected * row[rank][1]) for row in keys)


def total(vectors) -> Vector:
    x, y = Fraction(0), Fraction(0)
    for vector in vectors:
        x, y = x + vector[0], y + vector[1]
    return x, y


def step(toy, micro_batches, multiplier, world_size, tokens, reduction, gather) -> Vector:
    """The gradient after accumulation over the micro-batches and DDP; `multiplier(C, sizes)` is mu of one group."""
    held = []
    for groups in micro_batches:
        sizes = [len(keys) for keys in groups]
        for keys in groups:
            mu = Fraction(multiplier(len(keys), sizes)) / tokens
            for rank in range(len(keys)):
                x, y = toy.gradient_on_rank(keys, rank, gather)
                held.append((mu * x, mu * y))
    x, y = total(held)
    return (x / world_size, y / world_size) if reduction == "mean" else (x, y)


def weights_of(size: int, sizes: list[int], reduction: str, gather: str):
    return loss_weights(sum(sizes), sizes, reduction=reduction, gather=gather)[sizes.index(size)]


def random_sizes(chance: random.Random, world_size: int) -> list[int]:
    cuts = sorted(chance.sample(range(1, world_size), chance.randrange(world_size))) if world_size > 1 else []
    return [b - a for a, b in zip([0, *cuts], [*cuts, world_size])]


@pytest.mark.sample(3)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("gather", GATHERS)
def test_the_step_is_that_of_one_process_for_any_groups_and_micro_batches(reduction: str, gather: str) -> None:
    chance = random.Random(f"{reduction} {gather}")
    for _ in range(60):
        world_size, tokens, toy = chance.randint(1, 9), chance.randint(1, 50), Toy(chance)
        micro_batches = [
            [toy.group(size) for size in random_sizes(chance, world_size)] for _ in range(chance.randint(1, 3))
        ]
        x, y = total(toy.gradient(keys) for groups in micro_batches for keys in groups)
        found = step(
            toy, micro_batches, lambda size, sizes: weights_of(size, sizes, reduction, gather).backward,
            world_size, tokens, reduction, gather,
        )  # fmt: skip
        assert found == (x / tokens, y / tokens)


@pytest.mark.parametrize("gather", GATHERS)
def test_the_logged_loss_is_that_of_one_process(gather: str) -> None:
    chance = random.Random(gather)
    for _ in range(60):
        world_size, tokens, toy = chance.randint(1, 9), chance.randint(1, 50), Toy(chance)
        micro_batches = [[toy.group(s) for s in random_sizes(chance, world_size)] for _ in range(2)]
        mean = summed = Fraction(0)
        for groups in micro_batches:
            for weights, keys in zip(loss_weights(world_size, list(map(len, groups)), gather=gather), groups):
                on_every_rank = toy.loss(keys) / tokens * len(keys)
                mean += weights.report_mean * on_every_rank / world_size
                summed += weights.report_sum * on_every_rank
        wanted = sum((toy.loss(keys) for groups in micro_batches for keys in groups), Fraction(0)) / tokens
        assert mean == summed == wanted


@pytest.mark.sample(3)
@pytest.mark.parametrize("gather", GATHERS)
def test_the_per_token_tuple_divides_out_to_the_same_step(gather: str) -> None:
    """verl: mu N_g / T * R on each rank, DDP sums, then a division by all real tokens."""
    chance = random.Random(7)
    for _ in range(40):
        toy, tokens = Toy(chance), chance.randint(1, 50)
        lengths = [chance.randint(1, 400) for _ in range(chance.randint(4, 12))]
        plan: Plan = plan_micro_batches(lengths, 4, 512)
        real = sum(
            real_tokens_of_rank([lengths[i] for i in group.samples], group.local_cp_size, rank)
            for batch in plan.micro_batches
            for group in batch.groups
            for rank in range(group.local_cp_size)
        )
        assert real == sum(lengths)
        micro_batches = [[toy.group(g.local_cp_size) for g in batch.groups] for batch in plan.micro_batches]
        x, y = step(
            toy, micro_batches, lambda size, sizes, real=real: weights_of(size, sizes, "sum", gather).per_token * real,
            4, tokens, "sum", gather,
        )  # fmt: skip
        wanted = total(toy.gradient(keys) for groups in micro_batches for keys in groups)
        assert (x / real, y / real) == (wanted[0] / tokens, wanted[1] / tokens)


# Ratios to the right step in runs of the real engine with one C throughout: dcp.md, section 2.3.
WRONG = [
    ("mean", "detached", "D of pull request 5869", lambda w, c: Fraction(w, c), lambda w, c: Fraction(1, c)),
    ("mean", "detached", "no multiplier", lambda w, c: 1, lambda w, c: Fraction(1, w)),
    ("mean", "detached", "T summed over ranks", lambda w, c: Fraction(1, w), lambda w, c: Fraction(1, w * w)),
    ("mean", "detached", "T summed over ranks, times W", lambda w, c: 1, lambda w, c: Fraction(1, w)),
    ("sum", "detached", "D under DDP sum", lambda w, c: Fraction(w, c), lambda w, c: Fraction(w, c)),
    ("mean", "autograd", "W", lambda w, c: w, lambda w, c: c),
    ("mean", "replicated", "W", lambda w, c: w, lambda w, c: c),
    ("mean", "replicated", "D, right here", lambda w, c: Fraction(w, c), lambda w, c: 1),
]


@pytest.mark.parametrize("reduction, gather, name, multiplier, ratio", WRONG, ids=[w[2] for w in WRONG])
def test_each_multiplier_is_off_by_the_ratio_that_was_measured(reduction, gather, name, multiplier, ratio) -> None:
    chance = random.Random(name)
    for world_size, size in [(4, 1), (4, 2), (4, 4), (8, 8), (8, 2)]:
        toy = Toy(chance)
        micro_batches = [[toy.group(size) for _ in range(world_size // size)] for _ in range(2)]
        x, y = total(toy.gradient(keys) for groups in micro_batches for keys in groups)

        def mu(c: int, _: list[int], ranks: int = world_size) -> Fraction:
            return Fraction(multiplier(ranks, c))

        found = step(toy, micro_batches, mu, world_size, 10, reduction, gather)
        off = ratio(world_size, size)
        assert found == (off * x / 10, off * y / 10)


def test_with_unequal_groups_the_wrong_multiplier_turns_the_gradient() -> None:
    toy = Toy(random.Random(1))
    micro_batches = [[toy.group(4)], [toy.group(1) for _ in range(4)]]
    x, y = total(toy.gradient(keys) for groups in micro_batches for keys in groups)
    wrong = step(toy, micro_batches, lambda size, _: Fraction(4, size), 4, 1, "mean", "detached")
    assert wrong[0] * y != wrong[1] * x
    right = step(toy, micro_batches, lambda size, _: 4, 4, 1, "mean", "detached")
    assert right == (x, y)


def test_real_tokens_follow_the_zigzag_order() -> None:
    """Against the positions themselves: pad, cut into 2C chunks, give chunks c and 2C - 1 - c to rank c, count."""
    chance = random.Random(2)
    for _ in range(300):
        size, align = chance.choice([1, 2, 4, 6, 8]), chance.choice([1, 2, 8])
        lengths = [chance.randint(1, 300) for _ in range(chance.randint(1, 4))]
        for rank in range(size):
            count = 0
            for length in lengths:
                multiple = align * size * (2 if size > 1 else 1)
                places = list(range(-(-length // multiple) * multiple))
                if size > 1:
                    bounds = list(accumulate([0] + [len(places) // (2 * size)] * (2 * size)))
                    chunks = [places[a:b] for a, b in pairwise(bounds)]
                    places = chunks[rank] + chunks[2 * size - 1 - rank]
                count += sum(place < length for place in places)
            assert real_tokens_of_rank(lengths, size, rank, Setup(tp=align)) == count


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"world_size": 8, "group_sizes": [4, 2]}, r"found 6 ranks.*wanted all 8"),
        ({"world_size": 8, "group_sizes": [8, 0]}, "group size: found 0"),
        ({"world_size": 8, "group_sizes": []}, "found 0 ranks"),
        ({"world_size": True, "group_sizes": [1]}, "world_size: found True"),
        ({"world_size": 1, "group_sizes": [1], "reduction": "avg"}, "wanted one of mean, sum"),
        ({"world_size": 1, "group_sizes": [1], "gather": "none"}, "wanted one of detached, autograd, replicated"),
    ],
)
def test_what_makes_no_sense_is_an_error(arguments: dict, words: str) -> None:
    with pytest.raises(HcpError, match=words):
        loss_weights(**arguments)


def test_a_rank_outside_the_group_is_an_error() -> None:
    with pytest.raises(HcpError, match="wanted 0 to 1"):
        real_tokens_of_rank([4], 2, 2)
