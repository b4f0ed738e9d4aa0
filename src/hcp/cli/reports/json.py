"""A check's report as JSON (`hcp.check/1`) and as the parts that SARIF shares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hcp.core.place import Location
from hcp.launch.fact import Fact, Launch
from hcp.rules.report import Finding, Report
from hcp.rules.rule import Source

SCHEMA = "hcp.check/1"
SCHEMA_MANY = "hcp.check-many/1"


def report_json(report: Report, strict: bool) -> dict[str, Any]:
    """The report as plain data, in a stable order."""
    return {
        "schema": SCHEMA,
        "ok": not report.failed(strict),
        "target": target_json(report.launch),
        "facts": facts_json(report.launch),
        "summary": summary_json(report),
        "findings": [finding_json(finding) for finding in report.findings],
        "accepted": [{"rule": item.rule.id, "location": place_json(item.location)} for item in report.accepted],
        "not_checked": [{"rule": item.rule.id, "needs": list(item.needs)} for item in report.not_checked],
    }


def unusable_json(target: str, message: str) -> dict[str, Any]:
    """The place of a target that could not be used, among several."""
    return {"schema": SCHEMA, "ok": False, "target": {"name": target, "kind": None, "form": None}, "error": message}


def many_json(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Several targets: each its own object, and the sums."""
    keys = ("error", "warning", "info", "applied", "not_checked", "accepted")
    sums = {key: sum(result["summary"][key] for result in results if "summary" in result) for key in keys}
    return {
        "schema": SCHEMA_MANY,
        "ok": all(result["ok"] for result in results),
        "summary": {"targets": len(results), "unusable": sum("error" in result for result in results), **sums},
        "results": results,
    }


def target_json(launch: Launch) -> dict[str, Any]:
    reading = launch.reading
    return {"name": reading.target, "kind": reading.dialect, "form": reading.form, "notes": list(reading.notes)}


def facts_json(launch: Launch) -> dict[str, Any]:
    """Every known fact with its value, origin and place; what is unknown for a reason is listed with it."""
    known = {name: fact_json(fact) for name, fact in sorted(launch.facts.items())}
    unknown = {
        name: {"value": None, "origin": "unknown", "reason": reason}
        for name, reason in sorted(launch.unknown.items())
        if name not in known
    }
    return known | unknown


def fact_json(fact: Fact) -> dict[str, Any]:
    value = list(fact.value) if isinstance(fact.value, tuple) else fact.value
    return {"value": value, "origin": fact.origin, "location": place_json(fact.location)}


def place_json(location: Location | None) -> dict[str, Any] | None:
    return {"file": location.file, "line": location.line, "column": location.column} if location else None


def summary_json(report: Report) -> dict[str, int]:
    return {
        "error": report.num_findings("error"),
        "warning": report.num_findings("warning"),
        "info": report.num_findings("info"),
        "applied": report.applied,
        "not_checked": len(report.not_checked),
        "accepted": len(report.accepted),
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule.id,
        "title": finding.rule.title,
        "severity": finding.severity,
        "effect": finding.effect,
        "stage": finding.stage,
        "message": finding.problem.message,
        "found": finding.problem.found,
        "wanted": finding.problem.wanted,
        "keys": list(finding.keys),
        "location": place_json(finding.location),
        "fixes": [
            {"overrides": list(fix.overrides), "cli": list(fix.cli), "effect": fix.effect}
            | ({"without": list(fix.without)} if fix.without else {})
            | ({"lines": list(fix.lines)} if fix.lines else {})
            for fix in finding.fixes
        ],
        "source": sources_json(finding.rule.source),
    }


def sources_json(sources: Iterable[Source]) -> list[dict[str, str]]:
    names = ("repo", "path", "qualname", "contains", "absent", "versions", "where")
    return [{name: getattr(source, name) for name in names if getattr(source, name)} for source in sources]
