"""A check's report as GitHub workflow commands, which become annotations on the changed lines."""

from __future__ import annotations

from hcp.cli.reports.text import fix_text
from hcp.rules.report import Finding, Report

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def report_github(report: Report) -> str:
    """One `::error file=…::…` line per finding."""
    return "\n".join(_line(report, finding) for finding in report.findings)


def _line(report: Report, finding: Finding) -> str:
    properties = {"title": f"{finding.rule.id}: {finding.rule.title}"}
    if finding.location:
        place = finding.location
        properties = {
            "file": place.file,
            "line": str(place.line),
            "col": str(place.column),
            "endLine": str(place.end_line),
        } | properties
    text = f"{finding.problem.message} (found: {finding.problem.found}; wanted: {finding.problem.wanted})"
    text += "".join(f"\nfix: {fix_text(report.launch, fix)}" for fix in finding.fixes)
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_COMMANDS[finding.severity]} {written}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
