"""What planning for a pipeline gains: `python lab dcp/pipeline`.

The estimated time with PP stages of two plans: one made for PP, whose objective has the bubble of the slowest
micro-batch (and divides it by VPP), and one made as if there were no pipeline. Llama 3 8B's sizes on H100, ten
realistic shapes.
"""

from __future__ import annotations

import sys

from program import parser_of
from shapes import REALISTIC, Case, realistic
from wide import mean

import judge
from megatron_hcp.dcp import Cost, Setup, measure, plan_micro_batches

STAGES = ((1, 1), (4, 1), (4, 2), (8, 1), (16, 1))
CASES = [Case(world_size, 8192, world_size * each) for world_size in (8, 32) for each in (2, 8, 32)]


def gain(name: str, case: Case, pp: int, vpp: int) -> float:
    """Time of the plan made without a pipeline over that of the plan made for it, both with it."""
    cost = Cost.from_facts(judge.CONFIGS["gqa"], "h100", pp=pp)
    lengths, ranks, most = realistic(name, case, 0), case.world_size, case.max_seqlen
    made_for = plan_micro_batches(lengths, ranks, most, cost=cost, pp=pp, vpp=vpp)
    plain = plan_micro_batches(lengths, ranks, most, cost=cost)
    setup = Setup(cost, pp=pp, vpp=vpp)
    return measure(plain.micro_batches, lengths, ranks, most, setup).estimated_s / made_for.metrics.estimated_s


def main() -> int:
    parser_of(__doc__).parse_args()
    print("PP VPP    mean  least   most  slower than plain by more than 1 %")
    for pp, vpp in STAGES:
        gains = [gain(name, case, pp, vpp) for name in REALISTIC for case in CASES]
        worse = sum(one < 0.99 for one in gains)
        print(
            f"{pp:2d} {vpp:3d} {mean(gains):7.3f} {min(gains):6.3f} {max(gains):6.3f}  {worse} of {len(gains)}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
