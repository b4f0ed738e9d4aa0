"""Published layouts before the planner: `python bench/plan/recipes.py --rows FOLDER`.

Each layout of Megatron-Bridge's table, once: whether it is legal, how much memory it lacks, and how far it is behind
the best that the search finds for the same job. Exit 1 where one is illegal, more than a tenth are too large, or fewer
than nine of ten are within 10 % of the best.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rows import bridge_rows

from hcp.plan.answer import judge, plan_job
from hcp.plan.constants import rates_of

NEAR, MOST_TOO_LARGE, LEAST_NEAR = 0.10, 0.10, 0.90


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, required=True)
    folder = parser.parse_args().rows
    seen: set[tuple[object, ...]] = set()
    illegal = too_large = near = fitting = 0
    for row in bridge_rows(folder / "measured_bridge.jsonl"):
        key = (
            row.model.name,
            row.job.gpu.name,
            row.job.world_size,
            row.job.global_batch,
            row.job.precision,
            row.layout,
        )
        if row.group != "counted" or key in seen:
            continue
        seen.add(key)
        rates = rates_of(row.job.gpu, row.job.precision, row.job.versions, None, row.job.overlaps_ep)
        item = judge(row.model, row.layout, row.job, rates)
        label = row.name.partition(" ")[2]
        if item.rules:
            illegal += 1
            print(f"ILLEGAL {', '.join(item.rules)}: {label}")
            continue
        if not item.fits:
            too_large += 1
            print(f"{item.over_gib:6.1f} GiB over {item.usable_gib:.1f}: {label}")
            continue
        best = plan_job(row.model, row.job, rates, {}, 3).best
        assert item.time and best and best[0].time
        behind = item.time.seconds / min(other.time.seconds for other in best if other.time) - 1
        fitting += 1
        near += behind <= NEAR
        print(f"{behind:+6.1%} behind {best[0].layout}: {label}")
    print(
        f"{len(seen)} layouts: {illegal} illegal, {too_large} too large, {near} of {fitting} near the best ({NEAR:.0%})"
    )
    return int(illegal > 0 or too_large > MOST_TOO_LARGE * len(seen) or near < LEAST_NEAR * fitting)


if __name__ == "__main__":
    sys.exit(main())
