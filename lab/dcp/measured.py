"""Speed-ups of dynamic CP that Megatron-LM's dev branch measured, beside what a plan says of the same workload.

examples/dynamic_context_parallel/README.md of June 2026: dev's scheduler over dp_balanced with CP 4, 20 steps of one
run on 4 to 64 GPUs, four a node. The script draws lognormal lengths, of which we don't know which ones it drew: each
draw here is 20 steps. `python lab dcp/measured [--draws 6]`.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from statistics import mean
from typing import NamedTuple

from program import at_least_one, parser_of

from megatron_hcp.cost.model_sizes import ModelSizes
from megatron_hcp.dcp.cost import Cost
from megatron_hcp.dcp.policies import plan_with
from megatron_hcp.dcp.setup import Setup

MODEL = ModelSizes(12, 2048, 16, 16, 128, 128, 8192, 12, False, 131072)
GPU, PER_NODE, CP, RANK_TOKENS, STEPS = "gb200", 4, 4, 2048, 20
BATCHES = 8
"""Sequences of a step for each group of `CP` ranks."""
MEAN, SIGMA, LEAST, MOST = 1024, 1.5, 128, 8192
MEASURED_MS = {
    4: (195.269, 151.906), 8: (220.119, 155.850), 16: (226.775, 187.125), 32: (286.206, 208.088),
    64: (271.988, 181.912),
}  # fmt: skip
"""By GPUs, the trimmed mean of a step with dp_balanced, and with dynamic CP."""
NEAR = 0.08


class Answer(NamedTuple):
    """Of one draw: how many times faster dynamic CP is, and milliseconds of a step with dp_balanced."""

    speed_up: float
    static_ms: float


def answers(gpus: int, draws: int) -> list[Answer]:
    """One for each draw."""
    setup = Setup(groups="dev", cost=Cost.from_model(MODEL, GPU, gpus_per_node=PER_NODE))
    found = []
    for seed in range(draws):
        steps = list(_drawn(gpus // CP * BATCHES, seed))
        static, dynamic = (
            mean(plan_with(policy, lengths, gpus, RANK_TOKENS, setup).metrics.estimated_s for lengths in steps)
            for policy in (f"static:{CP}", "dev")
        )
        found.append(Answer(static / dynamic, static * 1e3))
    return found


def _drawn(count: int, seed: int) -> Iterator[list[int]]:
    """The lengths of each step, as generate_lognormal_samples of sft_dataset.py draws them."""
    draw = random.Random(seed)
    middle = math.log(MEAN) - SIGMA**2 / 2
    for _ in range(STEPS):
        yield [int(min(MOST, max(LEAST, draw.lognormvariate(middle, SIGMA)))) for _ in range(count)]


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--draws", type=at_least_one, default=6, help="draws of 20 steps")
    draws = parser.parse_args().draws
    near = 0
    for gpus, (static, dynamic) in MEASURED_MS.items():
        found = [answer.speed_up for answer in answers(gpus, draws)]
        measured, middle = static / dynamic, mean(found)
        near += abs(middle - measured) <= NEAR
        slower = static / mean(answer.static_ms for answer in answers(gpus, 1))
        print(
            f"{gpus:3} GPUs  measured {measured:.3f}  planned {middle:.3f} "
            f"({min(found):.2f} to {max(found):.2f} by the draw)"
            f"  a measured step takes {slower:.0f} times the planned one"
        )
    print(f"{near} of {len(MEASURED_MS)} within {NEAR}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
