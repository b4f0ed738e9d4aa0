"""Published measurements of ring, all-to-all and both, beside the planner's order: `python lab plan/orderings`.

Each case states what was measured and where, the layouts that were compared, and the job as far as it is known; the
planner lacks the machine of some, so the nearest one stands in. A case is `no model` where the measured ring was
not Transformer Engine's: it lost because of its code and not because of its traffic. Exit 1 where an order differs.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import NamedTuple

from program import parser_of
from rows import model_named

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.constants import rates_for
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.time.step import step_time

SAME = 0.03
LEVELS = Layout(cp=16, cp_comm_type="a2a+p2p", hcp_sizes=(8, 2))


class Case(NamedTuple):
    """`layouts` from the fastest measured to the slowest; `same`: they were equal. `no_model`: why no order is said."""

    source: str
    model: str
    layers: int | None
    job: PlanJob
    layouts: tuple[Layout, ...]
    same: bool = False
    no_model: str = ""


H100, B200 = gpu_named("h100"), gpu_named("b200")
CASES = (
    Case(
        "Megatron-Bridge's documents: TP 2 CP 4 a2a = TP 1 CP 16 [8,2], 128k, 4 x 8 GPUs", "llama3-8b", None,
        PlanJob(32, 8, H100, 8, 131072, 32), (Layout(tp=2, cp=4, cp_comm_type="a2a"), LEVELS), same=True,
    ),
    Case(
        "SimuMax, B200: TP 2 CP 4 = TP 1 CP 8 with a2a, 32k", "llama3-70b", 12, PlanJob(8, 8, B200, 8, 32768, 4),
        (Layout(tp=2, cp=4, cp_comm_type="a2a"), Layout(cp=8, cp_comm_type="a2a")), same=True,
    ),
    Case(
        "SimuMax, B200: TP 2 CP 4 = TP 1 CP 8 with a2a, 128k", "llama3-405b", 4, PlanJob(8, 8, B200, 8, 131072, 4),
        (Layout(tp=2, cp=4, cp_comm_type="a2a"), Layout(cp=8, cp_comm_type="a2a")), same=True,
    ),
    Case(
        "MaxText PR 4687, Llama 2 7B, 32k, CP 16: all-to-all, then all-gather, then ring", "llama2-7b", None,
        PlanJob(16, 8, H100, 72, 32768, 16),
        tuple(Layout(cp=16, cp_comm_type=kind) for kind in ("a2a", "all_gather", "p2p")),
        no_model="a TPU, and a ring of JAX at half the rate of the others",
    ),
    Case(
        "EasyContext issue 37: Ulysses 15 % faster than a ring in one node", "llama2-7b", None,
        PlanJob(8, 8, gpu_named("a100"), 8, 65536, 8),
        (Layout(cp=8, cp_comm_type="a2a"), Layout(cp=8)), no_model="a ring of PyTorch, 84 % of no CP",
    ),
    Case(
        "YunChang's README: inside NVLink Ulysses before a ring where the heads suffice", "llama2-7b", None,
        PlanJob(8, 8, H100, 8, 8192, 8), (Layout(cp=8, cp_comm_type="a2a"), Layout(cp=8)),
    ),
    Case(
        "Megatron-Bridge's documents: p2p while it overlaps", "llama3-8b", None, PlanJob(16, 8, H100, 8, 262144, 16),
        (Layout(cp=16), Layout(cp=16, cp_comm_type="all_gather")),
    ),
)  # fmt: skip


def main() -> int:
    parser_of(__doc__).parse_args()
    wrong = 0
    for case in CASES:
        model = model_named(case.model, case.layers)
        rates = rates_for(case.job)
        seconds = [step_time(model, layout, case.job, rates).seconds for layout in case.layouts]
        if case.same:
            agrees = max(seconds) / min(seconds) - 1 <= SAME
        else:
            agrees = all(later >= earlier * (1 - SAME) for earlier, later in pairwise(seconds))
        wrong += not agrees and not case.no_model
        verdict = "agrees" if agrees else "no model" if case.no_model else "DIFFERS"
        print(f"{verdict:9}{case.source}{'; ' + case.no_model if case.no_model else ''}")
        for layout, time in zip(case.layouts, seconds, strict=True):
            print(f"         {time / seconds[0]:6.3f} x  {layout}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
