"""Dynamic CP on shapes that the scheduler was not tuned on: `python lab dcp/wide [--quick] [--cells]`.

Two questions. Is a plan dominated: is a published scheduler never worse in imbalance, op and micro-batches, and better
somewhere by 0.03? And how long does a step take, communication included, by lab/dcp/judge.py, which is not
what the search minimizes? There, `timed` are our plans made for the model (`Cost.from_facts`), `ours` those of the
default price. fcp makes groups of every size and is compared with our plans of `groups="any"`.

A published plan with more than M tokens on a rank, padding not counted, is none for a framework that packs a group's
sequences into one pass, as Megatron-LM dev and verl do. mcore's plans are often like that: megatron-core's main runs
each sequence in a pass of its own. They are counted separately and enter no target.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from program import parser_of
from shapes import ADVERSARIAL, REALISTIC, Case, adversarial, realistic

import judge
from megatron_hcp.dcp import Cost, MicroBatch, Setup, measure, plan_micro_batches
from megatron_hcp.dcp.published import NO_PACKING, published_micro_batches, static_size
from megatron_hcp.ground.errors import HcpError

BEYOND, BEHIND = 0.03, 1.05
OP_LIMIT = 1.3
AHEAD = {2: 1.30, 8: 1.15, 32: 1.03}
"""By how much a step should be faster than with dev's plans, geometric mean, at so many sequences per rank."""
PUBLISHED = ("dev", "mcore", "static", "fcp")


class Cell(NamedTuple):
    kind: str
    name: str
    case: Case

    @property
    def per_rank(self) -> int:
        return max(2, round(self.case.count / self.case.world_size))

    def lengths(self) -> list[int]:
        return (realistic if self.kind == "realistic" else adversarial)(self.name, self.case, 0)


class Found(NamedTuple):
    imbalance: float
    op: float
    micro_batches: int
    fill: float
    """The most tokens that a rank holds in a micro-batch, without padding, over M."""
    seconds: dict[str, float]


def cells(sizes: Sequence[int], per_rank: Sequence[int]) -> list[Cell]:
    return [
        Cell(kind, name, Case(world_size, most, each * world_size))
        for kind, names in (("realistic", REALISTIC), ("adversarial", ADVERSARIAL))
        for name in names
        for world_size in sizes
        for most in (8192, 32768)
        for each in per_rank
    ]


def judged(cell: Cell, lengths: list[int], batches: Sequence[MicroBatch], packed: bool = True) -> Found:
    case = cell.case
    metrics = measure(batches, lengths, case.world_size, case.max_seqlen, Setup())
    steps = len(batches)
    if not packed:
        steps = sum(max(len(group.samples) for group in batch.groups) for batch in batches)
    groups = [
        [(group.start, group.local_cp_size, [lengths[i] for i in group.samples]) for group in batch.groups]
        for batch in batches
    ]
    seconds = {name: judge.step_seconds(model, groups, packed) for name, model in judge.MODELS.items()}
    held = max(sum(own) / size for batch in groups for _, size, own in batch)
    return Found(metrics.imbalance, metrics.mean_cp_over_min, steps, held / case.max_seqlen, seconds)


def run(cell: Cell) -> dict[str, Found]:
    """All schedulers that have a plan for the cell."""
    lengths, ranks, most = cell.lengths(), cell.case.world_size, cell.case.max_seqlen
    results = {"ours": judged(cell, lengths, plan_micro_batches(lengths, ranks, most).micro_batches)}
    anyhow = plan_micro_batches(lengths, ranks, most, groups="any")
    results["any"] = judged(cell, lengths, anyhow.micro_batches)
    for model, config in judge.CONFIGS.items():
        cost = Cost.from_facts(config, "h100")
        plan = plan_micro_batches(lengths, ranks, most, cost=cost)
        results[f"timed {model}"] = judged(cell, lengths, plan.micro_batches)
        plan = plan_micro_batches(lengths, ranks, most, cost=cost, groups="any")
        results[f"timed any {model}"] = judged(cell, lengths, plan.micro_batches)
    for name in PUBLISHED:
        static = static_size(lengths, ranks, most)
        policy = f"static:{static}" if name == "static" else name
        try:
            batches = published_micro_batches(policy, lengths, ranks, most, Cost())
        except HcpError:
            continue
        results[name] = judged(cell, lengths, batches, policy not in NO_PACKING)
    return results


def allowed_in(found: dict[str, Found]) -> list[str]:
    """The published schedulers whose plans keep M where a group's sequences are packed."""
    return [name for name in PUBLISHED if name in found and found[name].fill <= 1]


def dominated(ours: Found, other: Found) -> bool:
    pairs = list(zip(ours[:3], other[:3]))
    return all(b <= a for a, b in pairs) and any(b < a - BEYOND for a, b in pairs)


def mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def print_plans(results: dict[Cell, dict[str, Found]]) -> int:
    """Domination, and op beside the best published one at equal imbalance; returns how many targets are missed."""
    missed = 0
    for kind, allowed in (("realistic", 0.01), ("adversarial", 0.0)):
        some = {cell: found for cell, found in results.items() if cell.kind == kind}
        losing = [
            (cell, name)
            for cell, found in some.items()
            for name in allowed_in(found)
            if dominated(found["any" if name == "fcp" else "ours"], found[name])
        ]
        part = len({cell for cell, _ in losing}) / len(some)
        missed += part > allowed
        print(
            f"{kind}: dominated in {part:.1%} of {len(some)} cells (at most {allowed:.0%})", *losing[:6], sep="\n    "
        )
        worst, where = 0.0, None
        for cell, found in some.items():
            ours = found["ours"]
            for name in allowed_in(found):
                other = found[name]
                if name == "fcp" or other.imbalance > ours.imbalance or other.micro_batches > ours.micro_batches:
                    continue
                if ours.op / other.op > worst:
                    worst, where = ours.op / found[name].op, (cell, name)
        missed += worst > OP_LIMIT
        print(f"{kind}: op at most {worst:.2f} times that of a published plan of no more imbalance and steps: {where}")
    return missed


def print_seconds(results: dict[Cell, dict[str, Found]]) -> int:
    """Step time beside dev's and beside the best published plan; returns how many targets are missed."""
    missed = 0
    for model in judge.MODELS:
        for plans in ("timed", "ours"):
            ahead = defaultdict(list)
            behind: list[tuple[float, Cell, str]] = []
            apart: list[tuple[float, Cell, str]] = []
            for cell, found in results.items():
                own = found[f"timed {model}" if plans == "timed" else "ours"].seconds[model]
                own_any = found[f"timed any {model}" if plans == "timed" else "any"].seconds[model]
                if "dev" in found and cell.kind == "realistic":
                    ahead[cell.per_rank].append(found["dev"].seconds[model] / own)
                for name in PUBLISHED:
                    if name in found:
                        ratio = (own_any if name == "fcp" else own) / found[name].seconds[model]
                        (behind if name in allowed_in(found) else apart).append((ratio, cell, name))
            behind.sort(key=lambda item: item[0], reverse=True)
            over = [item for item in behind if item[0] > BEHIND]
            columns = ", ".join(f"{each}: {mean(ratios):.3f}" for each, ratios in sorted(ahead.items()))
            print(f"{model} {plans}: dev's step time over ours at n/W {columns}")
            print(f"    more than 5 % behind a published plan in {len(over)} of {len(behind)}; worst:")
            for ratio, cell, name in behind[:4]:
                print(f"      {ratio:.3f} {name} {cell.name} {tuple(cell.case)}")
            over_m = sorted((item for item in apart if item[0] > BEHIND), key=lambda item: -item[0])
            print(f"    and behind a plan with more than M tokens on a rank in {len(over_m)} of {len(apart)}; worst:")
            for ratio, cell, name in over_m[:2]:
                print(f"      {ratio:.3f} {name} {cell.name} {tuple(cell.case)}, {results[cell][name].fill:.1f} M")
            if plans == "timed":
                missed += bool(over) + sum(mean(ratios) < AHEAD.get(each, 1.0) for each, ratios in ahead.items())
    return missed


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="8 and 64 ranks, 2 and 8 sequences per rank: a minute")
    parser.add_argument("--world-sizes", type=int, nargs="+", default=[8, 12, 64, 256])
    parser.add_argument("--per-rank", type=int, nargs="+", default=list(AHEAD), help="sequences per rank")
    parser.add_argument("--cells", action="store_true", help="also print one line per cell")
    parser.add_argument("--sources", action="store_true", help="where the shapes come from")
    options = parser.parse_args()
    if options.sources:
        for name, shape in REALISTIC.items():
            print(f"{name}: {shape.source}")
    results = {}
    sizes, per_rank = ([8, 64], [2, 8]) if options.quick else (options.world_sizes, options.per_rank)
    for cell in cells(sizes, per_rank):
        results[cell] = run(cell)
        if options.cells:
            print(cell.kind, cell.name, tuple(cell.case))
            for name, found in results[cell].items():
                seconds = " ".join(f"{model} {value:.3f} s" for model, value in found.seconds.items())
                over = f" {found.fill:.1f} M" if found.fill > 1 else ""
                print(f"    {name:14s} {found.imbalance:.3f}/{found.op:.3f}/{found.micro_batches} {seconds}{over}")
    for name in PUBLISHED:
        made = [found[name].fill for found in results.values() if name in found]
        over = sum(fill > 1 for fill in made)
        most = f", the worst {max(made):.1f} M" if over else ""
        print(f"{name}: {len(made)} plans for {len(results)} cells, {over} of them over M{most}")
    missed = print_plans(results) + print_seconds(results)
    print(f"{missed} bars missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
