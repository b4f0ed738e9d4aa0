"""How many seconds one plan takes, and how good it is: `python lab dcp/speed`. CPU time, the better of two.

`plan_micro_batches` plans by price by default; the command line and the integrations plan by time.
"""

from __future__ import annotations

import math
import random
import sys
import time

from program import parser_of

from megatron_hcp.dcp import ASSUMED_COST, DEFAULT_COST, plan_micro_batches

MAX_SEQLEN = 8192
CASES = (
    ("65,536 sequences on 256 ranks (at most 1.5 s)", 256, 65536),
    ("n = 2 W, 1,024 ranks", 1024, 2048),
    ("n = 2 W, 4,096 ranks", 4096, 8192),
    ("n = 2 W, 16,384 ranks (at most 3 s)", 16384, 32768),
)


def main() -> int:
    parser_of(__doc__).parse_args()
    for text, world_size, count in CASES:
        chance = random.Random(count)
        lengths = [
            min(60000, int(chance.uniform(100, 1000) + chance.lognormvariate(math.log(4000), 1))) for _ in range(count)
        ]
        for objective, cost in (("by price", DEFAULT_COST), ("by time", ASSUMED_COST)):
            seconds = []
            for _ in range(2):
                start = time.process_time()
                plan = plan_micro_batches(lengths, world_size, MAX_SEQLEN, cost=cost)
                seconds.append(time.process_time() - start)
            metrics = plan.metrics
            print(
                f"{min(seconds):6.2f} s  {objective:8s}  {text}: imbalance {metrics.imbalance:.3f}, "
                f"op {metrics.mean_cp_over_min:.3f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
