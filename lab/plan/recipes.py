"""Published layouts, judged by the planner: `python lab plan/recipes --rows FOLDER`.

Each layout of Megatron-Bridge's table, once: whether it is legal, how much memory it lacks, and how far it is behind
the best that the search finds for the same job. A layout is superseded where the same table has another for the same
job that was measured more than 10 % faster. Exit 1 where one is illegal, more than a tenth are too large, or fewer than
nine of ten that are not superseded are within 10 % of the best.
"""

from __future__ import annotations

import sys
from pathlib import Path

from program import parser_of
from rows import Measured, bridge_rows

from megatron_hcp.plan.answer import judge, plan_job
from megatron_hcp.plan.constants import rates_for

NEAR, MOST_TOO_LARGE, LEAST_NEAR = 0.10, 0.10, 0.90


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=Path, required=True)
    folder = parser.parse_args().rows
    rows = [row for row in bridge_rows(folder / "measured_bridge.jsonl") if row.group == "counted"]
    fastest: dict[tuple[object, ...], float] = {}
    for row in rows:
        for key in (_job(row), (*_job(row), row.layout)):
            fastest[key] = min(row.seconds, fastest.get(key, row.seconds))
    seen: set[tuple[object, ...]] = set()
    illegal = too_large = near = fitting = superseded = 0
    for row in rows:
        key = (*_job(row), row.layout)
        if key in seen:
            continue
        seen.add(key)
        rates = rates_for(row.job)
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
        planned = plan_job(row.model, row.job, rates, {}, 3)
        best = planned.best
        assert item.time and best
        behind = item.time.seconds / planned.found.fitting[0].seconds - 1
        fitting += 1
        near += behind <= NEAR
        beaten = fastest[key] / fastest[_job(row)] - 1
        is_superseded = beaten > NEAR and behind > NEAR
        superseded += is_superseded
        measured = f" (superseded: another was measured {beaten:.0%} faster)" if is_superseded else ""
        print(f"{behind:+6.1%} behind {best[0].layout}: {label}{measured}")
    print(
        f"{len(seen)} layouts: {illegal} illegal, {too_large} too large, {near} of {fitting} near the best "
        f"({NEAR:.0%}), {superseded} of the others superseded"
    )
    missed = near < LEAST_NEAR * (fitting - superseded)
    return int(illegal > 0 or too_large > MOST_TOO_LARGE * len(seen) or missed)


def _job(row: Measured) -> tuple[object, ...]:
    """What two rows share if only their layouts differ."""
    job = row.job
    return row.model.name, job.gpu.name, job.world_size, job.global_batch, job.precision


if __name__ == "__main__":
    sys.exit(main())
