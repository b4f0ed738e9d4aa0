"""Reports on packed data, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from megatron_hcp.cli.reports.words import numbered, wrapped
from megatron_hcp.cli.screen import Line, Part
from megatron_hcp.core.pack_plan import PackPlan
from megatron_hcp.data.pack_report import DataNeeds, Fault, PackReport

_COLOURS = {"error": "red", "warning": "yellow"}


def check_lines(report: PackReport, needs: DataNeeds, kind: str, name: str) -> Iterator[Line]:
    """What was read, what the launch requires, and each fault in a few lines."""
    yield f"{name}: {kind}"
    sequences = numbered(report.sequences, "sequence")
    sizes = f"{sequences} of up to {report.longest:,} tokens, {numbered(report.tokens, 'token')}"
    if report.sequences == 1:
        sizes = f"{sequences} of {numbered(report.longest, 'token')}"
    if report.rows:
        full = f", {report.tokens / report.rows / needs.row:.1%} full" if needs.row else ""
        least = f"{report.narrowest:,} to " if report.narrowest < report.widest else ""
        sizes = f"{numbered(report.rows, 'row')} of {least}{report.widest:,} tokens{full}; {sizes}"
    yield from wrapped("  ", sizes)
    row = "" if needs.row is None else f" of {needs.row:,} tokens"
    yield from wrapped(
        "  the launch: ",
        f"cp {needs.cp}, tp {needs.tp}; sequences in multiples of {needs.sequence_multiple}, "
        f"rows{row} in multiples of {needs.row_multiple}",
    )
    packs_none = not needs.is_packed and not report.rows
    if packs_none:
        yield from wrapped(
            "  ", "it does not pack: sequences are concatenated and cut into samples, so any length works"
        )
    elif report.padding:
        yield f"  it pads every sequence to a multiple of {needs.padded_to}: {report.padding:,} tokens in total"
    for fault in report.faults:
        yield from _fault_lines(fault)
    if not report.faults:
        yield f"  ok{'' if packs_none else _why_ok(report, needs)}"
    errors, warnings = report.num_errors, len(report.faults) - report.num_errors
    yield f"{numbered(errors, 'error')}, {numbered(warnings, 'warning')}"


def _why_ok(report: PackReport, needs: DataNeeds) -> str:
    if report.padding:
        return f": every padded length is a multiple of {needs.padded_to}"
    return f": every length is a multiple of {report.divisor:,}"


def _fault_lines(fault: Fault) -> Iterator[Line]:
    place = f"{fault.place}: " if fault.place else ""
    label = f"  {fault.severity}"
    first, *more = wrapped(label, f"{f' {fault.rule}' if fault.rule else ''}: {place}{fault.message}", 4)
    yield "  ", Part(fault.severity, _COLOURS[fault.severity], bold=True), first[len(label) :]
    yield from more
    yield from wrapped("    found   ", fault.found)
    yield from wrapped("    wanted  ", fault.wanted)
    yield from wrapped("    do      ", fault.do)


def plan_lines(plans: Sequence[PackPlan], best: PackPlan, dp: int | None, note: str) -> Iterator[Line]:
    """One line per row length, the recommended one marked; `lost` counts sequences longer than the row."""
    sequences, tokens = best.sequences + best.lost_sequences, best.tokens + best.lost_tokens
    of = f" ({note})" if note else ""
    shared = f"; micro-batches of each of {dp} data-parallel ranks" if dp and dp > 1 else ""
    yield from wrapped("", f"{sequences:,} sequences, {tokens:,} tokens{of}; padded to {best.multiple}{shared}", 2)
    rows = [
        ("row", "", "micro-", "", "", "most in", "sequences", "tokens"),
        ("length", "rows", "batches", "padding", "unused", "a row", "lost", "lost"),
    ]
    for plan in plans:
        places = max(1, plan.rows * plan.pack_size)
        rows.append((
            f"{plan.pack_size:,}", f"{plan.rows:,}", f"{plan.micro_batches(dp or 1):,}",
            f"{plan.padding / places:.1%}", f"{plan.unused / places:.1%}", f"{plan.most_sequences:,}",
            f"{plan.lost_sequences:,}", f"{plan.lost_tokens:,}",
        ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for mark, row in zip([" ", " ", *("*" if plan is best else " " for plan in plans)], rows, strict=True):
        yield f"{mark} " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
    yield f"* packed_sequence_size={best.pack_size} pad_seq_to_mult={best.multiple}"
    yield f"  padding and unused positions together: {best.waste:.1%}"


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
