"""Lengths that the scheduler was not tuned on: ten realistic shapes, each with its source, and nine adversarial."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import NamedTuple

Draw = Callable[[random.Random], int]


class Shape(NamedTuple):
    """A distribution of lengths; what the source gives is in `source`, the rest of the curve is ours."""

    source: str
    draw: Draw


def lognormal(median: float, sigma: float, least: int, most: int) -> Draw:
    return lambda chance: max(least, min(most, int(chance.lognormvariate(math.log(median), sigma))))


def mixture(*parts: tuple[float, Draw]) -> Draw:
    def draw(chance: random.Random) -> int:
        pick = chance.random()
        for weight, part in parts:
            pick -= weight
            if pick < 0:
                return part(chance)
        return parts[-1][1](chance)

    return draw


def uniform(least: int, most: int) -> Draw:
    return lambda chance: chance.randint(least, most)


def quantiles(*points: tuple[float, int]) -> Draw:
    """Linear between the quantiles that are given."""

    def draw(chance: random.Random) -> int:
        u = chance.random()
        for (low, a), (high, b) in itertools.pairwise(points):
            if u <= high:
                return int(a + (b - a) * (u - low) / (high - low))
        return points[-1][1]

    return draw


REALISTIC = {
    "chat": Shape(
        "ShareGPT: prompts of 161 and answers of 338 tokens in the mean (vLLM, arXiv 2309.06180, figure 11)",
        lognormal(500 / math.exp(0.5), 1.0, 16, 8192),
    ),
    "mock_sft": Shape(
        "Megatron-LM dev, examples/dynamic_context_parallel: lognormal, mean 1024, sigma 1.5, 128 to 8192",
        lognormal(1024 / math.exp(1.125), 1.5, 128, 8192),
    ),
    "reasoning_sft": Shape(
        "OpenR1-Math-220k, filtered (SFT-Math-45k): p50 12,980, p90 32,888, p99 50,593 characters; at 3 to a token",
        quantiles((0, 500), (0.5, 4327), (0.9, 10963), (0.99, 16864), (1, 20000)),
    ),
    "long_sft": Shape("LongAlign-10k: 8k to 64k tokens (arXiv 2401.18058)", lognormal(16000, 0.6, 8000, 64000)),
    "long_tail_sft": Shape("verl #6555's benchmark: long tail from 1K to 16K", lognormal(1800, 0.8, 1024, 16384)),
    "mixed_sft": Shape(
        "LongAlign's training mix: 10k long instructions (8k to 64k) among ShareGPT's 76k chats (arXiv 2401.18058)",
        mixture((0.884, lognormal(500 / math.exp(0.5), 1.0, 16, 8192)), (0.116, lognormal(16000, 0.6, 8000, 64000))),
    ),
    "documents": Shape(
        "web text of which some documents pass 65,536 tokens (LongCrawl64, out of RedPajama-v2): a long tail",
        mixture((0.98, lognormal(900, 1.3, 64, 32768)), (0.02, uniform(32768, 131072))),
    ),
    "code_agents": Shape(
        "successful SWE-bench trajectories stay under 20k (arXiv 2602.16069), training ones pass 32k (2506.19290)",
        mixture((0.7, lognormal(9000, 0.5, 1500, 20000)), (0.3, uniform(20000, 48000))),
    ),
    "rl": Shape(
        "verl #7412: rollouts of 38 to 3072 tokens, 1267 in the mean, few at the cap; prompts added",
        mixture((0.95, lognormal(1200, 0.6, 200, 3500)), (0.05, lambda chance: 3072 + chance.randint(100, 400))),
    ),
    "rl_truncated": Shape(
        "DAPO (arXiv 2503.14476): up to 20,480 tokens; early in training most rollouts of a hard set are cut",
        mixture((0.6, lambda chance: 20480 + chance.randint(100, 400)), (0.4, lognormal(7000, 0.7, 300, 20480))),
    ),
}


class Case(NamedTuple):
    """W, M and n beside the name of an adversarial set, which decides the lengths."""

    world_size: int
    max_seqlen: int
    count: int


Lengths = Callable[[Case, random.Random], list[int]]


def _capped(part: float) -> Lengths:
    """`part` of the sequences have M tokens, the rest less."""

    def draw(case: Case, chance: random.Random) -> list[int]:
        at = int(part * case.count)
        return [case.max_seqlen] * at + [chance.randint(64, case.max_seqlen) for _ in range(case.count - at)]

    return draw


def _short_of(case: Case, chance: random.Random) -> list[int]:
    """All alike, but too few to fill the last micro-batch."""
    rounds = max(1, case.count // case.world_size)
    return [case.max_seqlen] * (rounds * case.world_size - chance.randint(1, case.world_size // 2))


def _giant(case: Case, chance: random.Random) -> list[int]:
    return [min(131072, case.world_size * case.max_seqlen)] + [chance.randint(64, 2048) for _ in range(case.count - 1)]


def _powers(case: Case, chance: random.Random) -> list[int]:
    """M times a power of two, one more and one less."""
    most = min(8, case.world_size)
    sizes = [(case.max_seqlen << k) // 8 for k in range(most.bit_length() + 2)]
    return [chance.choice(sizes) + chance.choice((-1, 0, 1)) for _ in range(case.count)]


ADVERSARIAL: dict[str, Lengths] = {
    "capped_10": _capped(0.1),
    "capped_50": _capped(0.5),
    "capped_90": _capped(0.9),
    "short_of_full": _short_of,
    "two_lengths": lambda case, chance: [chance.choice((700, 3 * case.max_seqlen // 2)) for _ in range(case.count)],
    "one_giant": _giant,
    "powers_of_two": _powers,
    "all_equal": lambda case, chance: [case.max_seqlen // 2] * case.count,
    "all_one_more": lambda case, chance: [case.max_seqlen + 1] * case.count,
}


def realistic(name: str, case: Case, seed: int) -> list[int]:
    """Lengths of one mini-batch; those too long for W ranks are cut to what fits."""
    chance = random.Random(f"{name}/{case}/{seed}")
    most = case.world_size * case.max_seqlen
    return [min(most, REALISTIC[name].draw(chance)) for _ in range(case.count)]


def adversarial(name: str, case: Case, seed: int) -> list[int]:
    return ADVERSARIAL[name](case, random.Random(f"{name}/{case}/{seed}"))
