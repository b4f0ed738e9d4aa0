"""Check reports as SARIF 2.1.0, for code-scanning viewers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from megatron_hcp import __version__
from megatron_hcp.cli.explain.command import page
from megatron_hcp.cli.reports.text import undecided_text
from megatron_hcp.cli.reports.words import finding_text, fix_text
from megatron_hcp.ground.place import Location
from megatron_hcp.ground.visible import visible
from megatron_hcp.judge.report import Finding, Report, Undecided
from megatron_hcp.rules.rule import Rule

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def reports_sarif(reports: Iterable[Report], unusable: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """One run for all reports.

    Accepted findings are suppressed results; unusable targets, and what is undecided, are notifications.
    """
    reports = list(reports)
    findings = [(report, finding, False) for report in reports for finding in report.findings]
    findings += [(report, finding, True) for report in reports for finding in report.accepted]
    rules = {finding.rule.id: finding.rule for _, finding, _ in findings}
    order = {rule_id: place for place, rule_id in enumerate(sorted(rules))}
    failures = [
        {"level": "error", "message": {"text": visible(message)}, "locations": [_file_location(target)]}
        for target, message in unusable
    ]
    undecided = [_notification(report, item) for report in reports for item in report.undecided]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "hcp",
                        "version": __version__,
                        "rules": [_rule(rules[rule_id]) for rule_id in order],
                    }
                },
                "invocations": [
                    {"executionSuccessful": not failures, "toolExecutionNotifications": failures + undecided}
                ],
                "columnKind": "unicodeCodePoints",
                "results": [_result(report, finding, order, accepted) for report, finding, accepted in findings],
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"hcp explain {rule.id}", "markdown": page(rule)},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"effect": rule.effect, "stage": rule.stage},
    }


def _result(report: Report, finding: Finding, order: dict[str, int], accepted: bool) -> dict[str, Any]:
    command = report.launch.reading.command
    text = visible(finding_text(finding) + (f" [{command}]" if command else ""))
    fixes = [visible(fix_text(report.launch, fix)) for fix in finding.fixes]
    if fixes:
        text += " Fix: " + "; or: ".join(fixes)
    location = _location(finding.location) if finding.location else _file_location(report.launch.reading.target)
    result = {
        "ruleId": finding.id,
        "ruleIndex": order[finding.rule.id],
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [location],
        "partialFingerprints": {"hcpFinding/v1": finding.id + (f" {command}" if command else "")},
        "properties": {"keys": list(finding.keys), "fixes": fixes},
    }
    if accepted:
        result["suppressions"] = [{"kind": "inSource"}]
    return result


def _notification(report: Report, item: Undecided) -> dict[str, Any]:
    return {
        "level": "warning",
        "descriptor": {"id": "undecided"},
        "message": {"text": visible(undecided_text(item))},
        "locations": [_location(item.location) if item.location else _file_location(report.launch.reading.target)],
        "properties": {"needs": list(item.needs)},
    }


def _location(place: Location) -> dict[str, Any]:
    location = _file_location(place.file)
    location["physicalLocation"]["region"] = {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
    return location


def _file_location(name: str) -> dict[str, Any]:
    path = PurePath(name)
    quoted = quote(os.fsencode(path.as_posix()))  # a name may hold bytes that are not UTF-8
    uri = f"file://{quoted}" if path.is_absolute() else quoted
    return {"physicalLocation": {"artifactLocation": {"uri": uri}}}
