"""A check's report as GitHub workflow commands, which GitHub shows as annotations on the changed lines."""

from __future__ import annotations

from megatron_hcp.cli.reports.text import undecided_text
from megatron_hcp.cli.reports.words import finding_text, fix_text
from megatron_hcp.ground.place import Location
from megatron_hcp.judge.report import Finding, Report

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def report_github(report: Report) -> list[str]:
    """One `::error file=...::...` line per finding, and a `::warning` for anything undecided."""
    undecided = [
        _command("warning", "undecided", item.location, (undecided_text(item), f"needs {', '.join(item.needs)}"))
        for item in report.undecided
    ]
    return [_finding(report, finding) for finding in report.findings] + undecided


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
