"""A check's report as GitHub workflow commands, which GitHub shows as annotations on the changed lines."""

from __future__ import annotations

import os
from collections.abc import Sequence

from megatron_hcp.cli.reports.text import undecided_text
from megatron_hcp.cli.reports.words import finding_text, fix_text
from megatron_hcp.ground.place import Location
from megatron_hcp.judge.report import Finding, Report

_MOST_NEEDS = 5
"""Facts that an annotation names: there is one for each thing to do."""
_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def report_github(report: Report) -> list[str]:
    """One `::error file=...::...` line per finding, and a `::warning` for anything undecided."""
    reading = report.launch.reading
    line = reading.line or 1
    start = Location(reading.target, line, 1, line, 1) if os.path.isfile(reading.target) else None
    undecided = [
        _command("warning", "undecided", item.location or start, (undecided_text(item), _needs(item.needs)))
        for item in report.undecided
    ]
    return [_finding(report, finding) for finding in report.findings] + undecided


def _needs(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NEEDS} more" if len(names) > _MOST_NEEDS else ""
    return f"needs {', '.join(names[:_MOST_NEEDS])}{more}"


def _finding(report: Report, finding: Finding) -> str:
    fixes = [f"fix: {fix_text(report.launch, fix)}" for fix in finding.fixes]
    title = f"{finding.id}: {finding.rule.title}"
    command = report.launch.reading.command
    lines = (finding_text(finding), *([command] if command else []), *fixes)
    return _command(_COMMANDS[finding.severity], title, finding.location, lines)


def _command(name: str, title: str, place: Location | None, lines: tuple[str, ...]) -> str:
    properties = {"title": title}
    if place:
        properties = {
            "file": place.file,
            "line": str(place.line),
            "col": str(place.column),
            "endLine": str(place.end_line),
        } | properties
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{name} {written}::{'%0A'.join(_data(line) for line in lines)}"


def _data(text: str) -> str:
    return text.replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
