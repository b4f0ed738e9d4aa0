"""Peak memory beside measured steps: `python lab plan/memory ROWS.jsonl [--terms] [--ran ROWS.jsonl]`.

A row is {"case": "llama3_70b_l12_tp2_cp4_pp1_dp1_seq32768_mbc4_cef", "alloc_gib": 68.43}, as `simumax_rows` reads it.
Exit 1 where a dense row is more than 0.3 % off, or one with experts more than 0.8 %.

`--ran`: layouts that ran, as Megatron-Bridge publishes them; exit 1 too where a rule forbids one, or one is called out
of memory with what its recipe recomputes; it is printed with the GiB over.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

from program import parser_of
from rows import bridge_rows, simumax_rows

from megatron_hcp.plan.legal import forbidden
from megatron_hcp.plan.memory import memory, usable_gib

LIMITS = {False: 0.003, True: 0.008}
"""How far a row may be off: of a dense model, of one with experts."""
_RECOMPUTED = {("deepseek-v3", "gb300", 2): frozenset({"mla_up_proj"})}
"""What recipes recompute that the rows do not say, by model, GPU and micro-batch. Source: recompute_modules of
DEEPSEEK_V3_PRETRAIN_CONFIG_GB300_V1 in deepseek_workload_base_configs.py, Megatron-Bridge v0.3.0 to v0.5.1."""


def measured(path: Path, terms: bool) -> bool:
    """Whether all rows are met; prints each."""
    errors: dict[bool, list[float]] = {False: [], True: []}
    for row in simumax_rows(path):
        found = memory(row.model, row.layout, row.job)
        assert row.peak_gib is not None
        error = found.peak / row.peak_gib - 1
        errors[bool(row.model.sizes.experts)].append(abs(error))
        print(f"{error:+8.2%}  {found.peak:7.2f} of {row.peak_gib:7.2f} GiB  stage {found.stage}  {row.name}")
        if terms:
            print("".join(f"{'':10}{value:8.3f}  {name}\n" for name, value in found.terms.items()))
    for moe, limit in LIMITS.items():
        if errors[moe]:
            worst = max(errors[moe])
            print(f"{'MoE' if moe else 'dense'}: median {median(errors[moe]):.2%}, max {worst:.2%}, limit {limit:.1%}")
    return all(max(errors[moe], default=0.0) <= limit for moe, limit in LIMITS.items())


def ran(path: Path) -> bool:
    """Whether the published layouts are legal, and fit."""
    over: dict[str, float] = {}
    for row in bridge_rows(path):
        if row.group != "counted":
            continue
        if rules := forbidden(row.model, row.layout, row.job):
            print(f"forbidden: {row.name} {rules}")
            return False
        size = f"{row.model.name} {row.job.world_size} x {row.job.gpu.name} {row.job.precision} {row.layout}"
        layout, job = row.layout, row.job
        again = _RECOMPUTED.get((row.model.name, job.gpu.name, layout.mbs))
        if again is not None:
            layout, job = replace(layout, recompute="selective"), replace(job, recomputes=again)
        over[size] = memory(row.model, layout, job).peak - usable_gib(job.gpu)
    for size, gib in over.items():
        if gib > 0:
            print(f"{gib:8.1f} GiB over  {size}")
    count = sum(gib > 0 for gib in over.values())
    print(f"{len(over)} layouts that ran: all legal, {count} called out of memory ({count / len(over):.1%})")
    return count == 0


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--terms", action="store_true", help="print the terms of each row")
    parser.add_argument("--ran", type=Path)
    options = parser.parse_args()
    met = measured(options.rows, options.terms)
    return int(not (met and (options.ran is None or ran(options.ran))))


if __name__ == "__main__":
    sys.exit(main())
