"""Reports on packed data as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hcp.cli.screen import Line, Part
from hcp.core.pack_plan import PackPlan
from hcp.data.pack_report import DataNeeds, Fault, PackReport

_COLOURS = {"error": "red", "warning": "yellow"}


def check_lines(report: PackReport, needs: DataNeeds, kind: str, name: str) -> Iterator[Line]:
    """What was read, what the launch asks, and each fault in a few lines."""
    yield f"{name}: {kind}"
    sizes = f"{report.sequences:,} sequences of up to {report.longest:,} tokens, {report.tokens:,} tokens"
    if report.rows:
        full = f", {report.tokens / report.rows / needs.row:.1%} full" if needs.row else ""
        sizes = f"{report.rows:,} rows of {report.narrowest:,} to {report.widest:,} tokens{full}; {sizes}"
    yield f"  {sizes}"
    row = "" if needs.row is None else f" of {needs.row:,} tokens"
    yield (
        f"  the launch: cp {needs.cp}, tp {needs.tp}; sequences in multiples of {needs.sequence_multiple}, "
        f"rows{row} in multiples of {needs.row_multiple}"
    )
    if not needs.is_packed and not report.rows:
        yield "  it packs none: sequences are joined and cut into samples, so no length of theirs matters"
    for fault in report.faults:
        yield from _fault_lines(fault)
    if not report.faults:
        yield f"  ok: every length is a multiple of {report.divisor:,}"
    errors, warnings = report.num_errors, len(report.faults) - report.num_errors
    yield f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"


def _fault_lines(fault: Fault) -> Iterator[Line]:
    place = f"{fault.place}: " if fault.place else ""
    yield (
        "  ", Part(fault.severity, _COLOURS[fault.severity], bold=True),
        f" {fault.rule}: " if fault.rule else ": ", f"{place}{fault.message}",
    )  # fmt: skip
    yield f"    found   {fault.found}"
    yield f"    wanted  {fault.wanted}"
    yield f"    do      {fault.do}"


def plan_lines(plans: Sequence[PackPlan], best: PackPlan, dp: int | None, note: str) -> Iterator[Line]:
    """A line for each row length, the recommended one marked."""
    sequences, tokens = best.sequences + best.lost_sequences, best.tokens + best.lost_tokens
    yield f"{sequences:,} sequences, {tokens:,} tokens{f' ({note})' if note else ''}; padded to {best.multiple}"
    ranks = "micro-batches" if dp is None else f"of dp {dp}"
    yield (
        f"  {'row':>10} {'rows':>10} {ranks:>14} {'padding':>8} {'unused':>8} {'most':>6} {'lost sequences':>15} "
        f"{'tokens':>12}"
    )
    for plan in plans:
        places = max(1, plan.rows * plan.pack_size)
        yield (
            f"{'*' if plan is best else ' '} {plan.pack_size:>10,} {plan.rows:>10,} {plan.micro_batches(dp or 1):>14,} "
            f"{plan.padding / places:>8.1%} {plan.unused / places:>8.1%} {plan.most_sequences:>6,} "
            f"{plan.lost_sequences:>15,} {plan.lost_tokens:>12,}"
        )
    yield f"* packed_sequence_size={best.pack_size} pad_seq_to_mult={best.multiple}: {best.waste:.1%} hold no token"


def plan_json(plans: Sequence[PackPlan], best: PackPlan, dp: int | None) -> dict[str, Any]:
    """The plans as plain data, `hcp.pack-plan/1`."""
    return {
        "schema": "hcp.pack-plan/1",
        "multiple": best.multiple,
        "dp": dp,
        "best": best.pack_size,
        "plans": [
            {
                **{name: getattr(plan, name) for name in _PLAN_FIELDS},
                "waste": round(plan.waste, 6),
                "micro_batches": plan.micro_batches(dp or 1),
                "fullness": list(plan.fullness),
            }
            for plan in plans
        ],
    }


_PLAN_FIELDS = (
    "pack_size", "rows", "sequences", "tokens", "padding", "unused", "lost_sequences", "lost_tokens", "most_sequences",
)  # fmt: skip
