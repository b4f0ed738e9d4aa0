"""NeMo's table of long sequences (Llama 2 7B, fp8, H100), beside what the planner would take.

    python lab plan/long --rows FOLDER

For each length: the published layout's predicted time against the best that the search finds with the published
micro-batch and recomputation left free, whether both use CP, and the speed-up by CP. Exit 1 where the published layout
is more than 3 % behind, CP on or off differs beyond a tie, or the speed-up is off by more than a factor of 1.3.

Then each length without CP: seconds as measured, of the best that the search finds, and of the best with full
recomputation. The table does not say which layouts it measured, so that nothing is demanded of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from program import parser_of
from rows import long_rows

from megatron_hcp.plan.answer import judge, plan_job
from megatron_hcp.plan.constants import rates_for
from megatron_hcp.plan.found import TIED

MOST_BEHIND, MOST_FACTOR = 0.03, 1.3


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=Path, required=True)
    path = parser.parse_args().rows / "long_sequence_llama2_7b_fp8_h100.jsonl"
    given = [json.loads(line) for line in path.read_text().splitlines()]
    failed = 0
    print("  tokens GPUs  published             s   fits   best                                   s  behind  speed-up")
    for row, line in zip(long_rows(path), given, strict=True):
        rates = rates_for(row.job)
        published = judge(row.model, row.layout, row.job, rates)
        planned, without = (plan_job(row.model, row.job, rates, fixed) for fixed in ({}, {"cp": 1}))
        with_cp = planned.best
        assert published.time and with_cp
        fastest = planned.found.fitting[0].seconds
        behind = published.time.seconds / fastest - 1
        alone = min((item.seconds for item in without.found.fitting), default=float("inf"))
        gain, measured = alone / fastest, line["tflops_with_cp"] / line["tflops_without_cp"]
        uses_cp = gain > 1 + TIED
        agrees = uses_cp == (measured > 1 + TIED) or abs(gain - measured) < TIED
        near = max(gain / measured, measured / gain) <= MOST_FACTOR
        wrong = behind > MOST_BEHIND or not agrees or not near
        failed += wrong
        marks = [] if agrees else ["CP on or off differs"]
        marks += (["behind"] if behind > MOST_BEHIND else []) + ([] if near else ["factor"])
        sizes = f"tp {row.layout.tp} cp {row.layout.cp:2} pp {row.layout.pp}"
        print(
            f"{row.job.seq_length:8} {row.job.world_size:4}  {sizes} {published.time.seconds:10.3f}  "
            f"{published.fits!s:5}  {str(with_cp[0].layout)[:36]:36} {fastest:8.3f} {behind:7.1%} "
            f"{gain:5.2f} / {measured:5.2f}  {', '.join(marks)}"
        )
    print(f"{failed} of {len(given)} rows miss\n\nwithout CP      s      best   recomputed")
    for row, line in zip(long_rows(path), given, strict=True):
        measured = row.seconds * line["tflops_with_cp"] / line["tflops_without_cp"]
        rates, found = rates_for(row.job), []
        for fixed in ({"cp": 1}, {"cp": 1, "recompute": "full"}):
            best = plan_job(row.model, row.job, rates, fixed).best
            found.append(min((item.time.seconds for item in best if item.time), default=float("inf")))
        print(
            f"{row.job.seq_length:8} {measured:10.2f} {found[0]:9.2f} {found[1]:9.2f}  {found[1] / measured - 1:+.1%}"
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
