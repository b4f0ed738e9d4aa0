"""The lengths, the cells and the targets of bench/dcp.py; a seed gives the same lengths everywhere."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

DISTRIBUTIONS = ("rl_lognormal", "sft_bimodal", "uniform", "outlier128k")
WORLD_SIZES = (8, 32, 64, 256)
MAX_SEQLENS = (8192, 16384)
COUNTS = (64, 256, 1024, 4096)


class Cell(NamedTuple):
    distribution: str
    world_size: int
    max_seqlen: int
    count: int
    seed: int

    @property
    def regime(self) -> str:
        """Which row of the targets the cell belongs to: distribution and sequences per rank."""
        per_rank = self.count / self.world_size
        if self.distribution == "outlier128k":
            part = "n/W > 16" if per_rank > 16 else "n/W = 16" if per_rank == 16 else "n/W < 16"
        else:
            part = "n/W >= 16" if per_rank >= 16 else "n/W 4-16" if per_rank >= 4 else "n/W < 4"
        return f"{self.distribution} {part}"

    def lengths(self) -> list[int]:
        return lengths(self.distribution, self.count, self.seed)


class Target(NamedTuple):
    """What the geometric means of a regime should be at most, and each single cell."""

    imbalance: float
    spread: float
    cell_imbalance: float = math.inf
    micro_batches: float = math.inf


TARGETS = {
    "rl_lognormal n/W >= 16": Target(1.025, 1.05, 1.10, 1.35),
    "sft_bimodal n/W >= 16": Target(1.012, 1.05, 1.10, 1.35),
    "uniform n/W >= 16": Target(1.012, 1.05, 1.10, 1.35),
    "rl_lognormal n/W 4-16": Target(1.10, 1.2),
    "sft_bimodal n/W 4-16": Target(1.10, 1.2),
    "uniform n/W 4-16": Target(1.10, 1.2),
    "rl_lognormal n/W < 4": Target(1.25, 2.6),
    "sft_bimodal n/W < 4": Target(1.25, 3.3),
    "uniform n/W < 4": Target(1.25, 2.2),
    "outlier128k n/W > 16": Target(1.06, 2.0),
    "outlier128k n/W = 16": Target(1.20, 3.0),
}


def lengths(distribution: str, count: int, seed: int) -> list[int]:
    """Lengths of the sequences of one mini-batch."""
    chance = random.Random(f"{distribution}/{count}/{seed}")
    if distribution == "rl_lognormal":
        long = math.log(4000)
        return [min(60000, int(chance.uniform(100, 1000) + chance.lognormvariate(long, 1))) for _ in range(count)]
    if distribution == "sft_bimodal":
        humps = [(1000, 300) if chance.random() < 0.8 else (24000, 4000) for _ in range(count)]
        return [max(16, int(chance.gauss(*hump))) for hump in humps]
    if distribution == "uniform":
        return [chance.randint(256, 16384) for _ in range(count)]
    result = [1024] * count
    result[chance.randrange(count)] = 131072
    return result


def cells(seeds: int, quick: bool) -> list[Cell]:
    """All cells that have a plan; quick: one seed, the smaller ones."""
    return [
        Cell(distribution, world_size, max_seqlen, count, seed)
        for distribution in DISTRIBUTIONS
        for world_size in (WORLD_SIZES if not quick else (8, 64, 256))
        for max_seqlen in MAX_SEQLENS
        for count in (COUNTS if not quick else (64, 256, 1024))
        for seed in range(seeds if not quick else 1)
        if distribution != "outlier128k" or world_size * max_seqlen >= 131072
    ]
