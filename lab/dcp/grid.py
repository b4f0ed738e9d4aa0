"""Schedulers of dynamic context parallelism side by side: `python lab dcp/grid [--quick] [--seeds N] [--cells]`.

Three numbers together, because one alone means nothing: imbalance (sum over micro-batches of the slowest rank's work,
over total work / W: 1.0 is the bound), op (mean group size over the tokens, over the smallest that fits) and
micro-batches (over what the tokens need; for megatron-core's scheduler, which packs nothing, its forward steps). Work
is 24576 s + s**2. "head" is Megatron-LM dev's scheduler, which verl uses, and "mcore" the released megatron-core's:
exact (lab/dcp/upstream.py), but faster than the originals. "pr5869" does not keep tokens per rank within M. Finally,
our plans are compared with those of this repository's first version.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from program import ROOT, parser_of

from megatron_hcp.dcp import DEFAULT_COST, plan_micro_batches
from megatron_hcp.dcp.published.dev import packing_aware
from megatron_hcp.dcp.published.main import balanced_cp
from megatron_hcp.dcp.published.open_group import Batches, smallest_power
from megatron_hcp.dcp.published.pr5869 import even_micro_batches

FIRST = ROOT / "lab/results/dcp_first_version.txt"
BEYOND = 0.03
WORSE_IMBALANCE, WORSE_SPREAD = 0.01, 0.02
NAMES = ("ours", "head", "mcore", "pr5869")
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


class Result(NamedTuple):
    imbalance: float
    spread: float
    micro_batches: float  # over what the tokens need
    seconds: float


def of_groups(cell: Cell, tokens: list[int], batches: Batches, apart: bool) -> Result:
    """`apart`: each sequence of a group is a forward step of its own."""
    work = [DEFAULT_COST.work(length) for length in tokens]
    slowest = [max(sum(work[i] for i in own) / size for size, own in batch) for batch in batches]
    spread = sum(size * tokens[i] for batch in batches for size, own in batch for i in own)
    steps = sum(max(len(own) for _, own in batch) if apart else 1 for batch in batches)
    return _result(cell, tokens, sum(slowest), spread, steps)


def _result(cell: Cell, tokens: list[int], slowest: float, spread: int, count: int) -> Result:
    bound = sum(map(DEFAULT_COST.work, tokens)) / cell.world_size
    least = sum(length * smallest_power(length, cell.max_seqlen) for length in tokens)
    need = -(-sum(tokens) // (cell.world_size * cell.max_seqlen))
    return Result(slowest / bound, spread / least, count / need, 0.0)


def timed(function: Callable[[], object]) -> tuple[object, float]:
    start = time.process_time()
    return function(), time.process_time() - start


def run(cell: Cell, names: tuple[str, ...]) -> dict[str, Result]:
    tokens, ranks, most = cell.lengths(), cell.world_size, cell.max_seqlen
    results = {}
    for name in names:
        if name == "ours":
            plan, seconds = timed(lambda: plan_micro_batches(tokens, ranks, most))
            batches = [[(g.local_cp_size, list(g.samples)) for g in b.groups] for b in plan.micro_batches]
        elif name == "head":
            batches, seconds = timed(lambda: packing_aware(tokens, ranks, most))
        elif name == "pr5869":
            batches, seconds = timed(lambda: even_micro_batches(tokens, ranks, most))
        else:
            batches, seconds = timed(lambda: balanced_cp(tokens, ranks, most))
        results[name] = of_groups(cell, tokens, batches, name == "mcore")._replace(seconds=seconds)
    return results


def dominated(ours: Result, other: Result) -> bool:
    """Whether the other is never worse, and better somewhere by more than BEYOND."""
    pairs = list(zip(ours[:3], other[:3]))
    return all(b <= a for a, b in pairs) and any(b < a - BEYOND for a, b in pairs)


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def print_cells(results: dict[Cell, dict[str, Result]], names: tuple[str, ...]) -> None:
    print("cell                              ", *(f"{name + ' imb/op/mb':>22s}" for name in names))
    for cell, found in results.items():
        where = f"{cell.distribution:12s} W{cell.world_size:<3d} M{cell.max_seqlen:<5d} n{cell.count:<4d}"
        where += f" seed {cell.seed}" if cell.seed else ""
        columns = (f"{r.imbalance:7.3f}/{r.spread:6.3f}/{r.micro_batches:6.2f}" for r in found.values())
        print(f"{where:34s}", *(f"{column:>22s}" for column in columns))
    print()


def print_regimes(results: dict[Cell, dict[str, Result]], names: tuple[str, ...]) -> int:
    """One line for each regime; returns how many targets of our plans are missed."""
    missed = 0
    print("geometric means   (target)            ", *(f"{name + ' imb/op/mb':>21s}" for name in names))
    regimes: dict[str, list[dict[str, Result]]] = {}
    for cell, found in results.items():
        regimes.setdefault(cell.regime, []).append(found)
    for regime, found in regimes.items():
        row = {name: [mean([each[name][k] for each in found]) for k in range(3)] for name in names}
        target, note, wanted = TARGETS.get(regime), "", ""
        if target is not None:
            wanted = f"{target.imbalance:g} at {target.spread:g}"
            over = [
                text
                for text, value, limit in [
                    ("imbalance", row["ours"][0], target.imbalance),
                    ("op", row["ours"][1], target.spread),
                    ("a cell's imbalance", max(each["ours"].imbalance for each in found), target.cell_imbalance),
                    ("a cell's micro-batches", max(each["ours"].micro_batches for each in found), target.micro_batches),
                ]
                if value > limit
            ]
            missed += bool(over)
            note = "missed: " + ", ".join(over) if over else "reached"
        columns = ("/".join(f"{value:6.3f}" for value in row[name]) for name in names)
        print(f"{regime:24s}({wanted:13s})", *(f"{column:>21s}" for column in columns), note)
    worst = max(results.items(), key=lambda item: item[1]["ours"].imbalance)
    print(f"\nworst cell of ours: {worst[1]['ours'].imbalance:.3f} in {worst[0]}")
    for name in names[1:]:
        losing = [cell for cell, found in results.items() if dominated(found["ours"], found[name])]
        print(f"cells in which {name} is nowhere worse and somewhere better by {BEYOND}: {len(losing)}", *losing[:4])
    return missed


def print_against_first(results: dict[Cell, dict[str, Result]]) -> None:
    """Cells in which our plan is worse than the first version's was.

    Two remain (uniform, W 256, n 64, seed 1): the search meets the first version's plan there, and refuses it as 1.3 %
    and 1.9 % dearer, for its op is a quarter higher. A tie-break that took it (imbalance -8 % for op +25 %) would have
    to take what is offered on better terms elsewhere, as in (uniform, 256, 16384, 1024, 1): imbalance -8.4 % for op
    +20 % at a cost of +0.8 %. That makes op worse there by 0.195. By judge.py a step takes 0.30 s with the
    plan of now, and 0.47 s with the first version's (Llama 3 8B).
    """
    rows = [line.split() for line in FIRST.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    worse, pairs = [], []
    for distribution, *numbers in rows:
        cell = Cell(distribution, *map(int, numbers[:4]))
        if cell in results:
            before, now = Result(*map(float, numbers[4:]), 0.0), results[cell]["ours"]
            pairs.append((before, now))
            if now.imbalance > before.imbalance + WORSE_IMBALANCE or now.spread > before.spread + WORSE_SPREAD:
                worse.append((cell, before, now))
    means = [mean([now[k] / before[k] for before, now in pairs]) for k in range(2)]
    print(f"\nbeside the first version in {len(pairs)} cells: imbalance {means[0]:.4f} times, op {means[1]:.4f} times")
    print(f"worse by more than {WORSE_IMBALANCE} in imbalance or {WORSE_SPREAD} in op: {len(worse)}")
    for cell, before, now in worse:
        print(f"    {tuple(cell)}: imbalance {before.imbalance:.3f} -> {now.imbalance:.3f}, "
              f"op {before.spread:.3f} -> {now.spread:.3f}")  # fmt: skip


def print_times(names: tuple[str, ...], quick: bool) -> None:
    print("\nseconds of one plan, M 8192, W 256 (CPU time, ours the best of 3; ratio to ours)")
    for distribution in ("rl_lognormal", "sft_bimodal", "uniform"):
        for count in (1024, 4096) if quick else (1024, 4096, 16384, 65536):
            row = {}
            for name in names:
                if name != "ours" and count > 16384:
                    continue
                cell = Cell(distribution, 256, 8192, count, 0)
                row[name] = min(run(cell, (name,))[name].seconds for _ in range(3 if name == "ours" else 1))
            ours = row.pop("ours")
            others = (f"{name} {value:8.3f} ({value / ours:5.1f}x)" for name, value in row.items())
            print(f"{distribution:13s} n {count:5d}  ours {ours:6.3f} ", *others)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, the smaller cells, about 10 s")
    parser.add_argument("--seeds", type=int, default=5, help="how many draws of lengths per cell")
    parser.add_argument("--cells", action="store_true", help="also print one line per cell")
    options = parser.parse_args()
    results = {cell: run(cell, NAMES) for cell in cells(options.seeds, options.quick)}
    if options.cells:
        print_cells(results, NAMES)
    missed = print_regimes(results, NAMES)
    print_against_first(results)
    print_times(NAMES, options.quick)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
