"""Reports on packed data as text."""

from __future__ import annotations

from collections.abc import Iterator

from hcp.cli.screen import Line, Part
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
