"""A check's report as JSON (`hcp.check/2`), and the parts shared with SARIF."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from megatron_hcp.backports.lacking import lacking
from megatron_hcp.cli.reports.backports import faults_json, first_json
from megatron_hcp.cli.reports.words import fact_value
from megatron_hcp.ground.place import Location
from megatron_hcp.ground.secrets import without_secrets
from megatron_hcp.judge.age import Age, ages_of
from megatron_hcp.judge.report import Finding, NotChecked, Presumed, Report, Undecided
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.facts.last_read import LastRead
from megatron_hcp.launch.images import unlisted
from megatron_hcp.rules.rule import Source

SCHEMA = "hcp.check/2"
SCHEMA_MANY = "hcp.check-many/2"


def report_json(
    report: Report, patch: str | None = None, left_out: Sequence[tuple[str, str]] | None = None
) -> dict[str, Any]:
    """The report as plain data, in a stable order; `left_out` holds (rule, reason) for fixes without a patch."""
    later = lacking(report.launch).lacking
    used = {name for finding in report.findings for name in finding.problem.facts}
    return {
        "schema": SCHEMA,
        "ok": report.verdict == "ok",
        "verdict": report.verdict,
        "target": target_json(report.launch),
        "summary": summary_json(report),
        "undecided": [undecided_json(item) for item in report.undecided],
        "presumed": [presumed_json(item) for item in report.presumed],
        "findings": [finding_json(finding) for finding in report.findings],
        "accepted": [
            {"rule": item.rule.id, **_guard_json(item), "location": place_json(item.location)}
            for item in report.accepted
        ],
        "not_checked": [not_checked_json(item) for item in report.not_checked],
        **not_read_json(ages_of(report.launch)),
        **faults_json(later),
        "backports": first_json(later),
        "facts": {name: fact_json(name, fact) for name, fact in sorted(report.launch.facts.items()) if name in used},
        "judged_by": judged_json(report),
        **({} if report.run is None else {"dryrun": report.run.data, "suspects": list(report.run.suspects)}),
        "patch": patch,
        **({} if left_out is None else {"left_out": [{"rule": rule, "reason": why} for rule, why in left_out]}),
    }


def not_read_json(ages: Iterable[Age]) -> dict[str, Any]:
    """The versions of a launch that are beyond what was read, under `not_read`; nothing where all were read."""
    data = [{"package": age.package, "version": age.version, "last_read": read_json(age.last)} for age in ages]
    return {"not_read": data} if data else {}


def read_json(read: LastRead) -> dict[str, str]:
    """What was read of a project; without what isn't known of it."""
    return {name: value for name, value in read._asdict().items() if value}


def many_json(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Several launches: one object each, and the totals."""
    keys = ("error", "warning", "info", "applied", "not_checked", "accepted")
    sums = {key: sum(result["summary"][key] for result in results if "summary" in result) for key in keys}
    verdicts = ("ok", "failed", "undecided")
    return {
        "schema": SCHEMA_MANY,
        "ok": all(result["ok"] for result in results),
        "summary": {
            "targets": len(results),
            "unusable": sum("error" in result for result in results),
            **{name: sum(result.get("verdict") == name for result in results) for name in verdicts},
            **sums,
        },
        "results": results,
    }


def show_json(launch: Launch, topology: str) -> dict[str, Any]:
    """The launch as it was read."""
    return {
        "schema": "hcp.show/2",
        "target": target_json(launch) | {"notes": [*launch.reading.notes, *unlisted(launch.facts)]},
        "topology": topology,
        "facts": facts_json(launch),
    }


def target_json(launch: Launch) -> dict[str, Any]:
    reading = launch.reading
    # For a script with several training commands, its reader says which one this is, and where.
    told = {name: getattr(reading, name, None) for name in ("command", "line")}
    return {
        "name": reading.target,
        "dialect": reading.dialect,
        "form": reading.form,
        **{name: value for name, value in told.items() if value is not None},
        "notes": list(reading.notes),
    }


def facts_json(launch: Launch) -> dict[str, Any]:
    """Every known fact with its value, origin and place, and every fact that is unknown for a stated reason."""
    known = {name: fact_json(name, fact) for name, fact in sorted(launch.facts.items())}
    unknown = {
        name: {"value": None, "origin": "unknown", "reason": reason}
        for name, reason in sorted(launch.unknown.items())
        if name not in known
    }
    return known | unknown


def fact_json(name: str, fact: Fact) -> dict[str, Any]:
    value = fact_value(name, fact)
    value = list(value) if isinstance(value, tuple) else value
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


def judged_json(report: Report) -> list[dict[str, Any]]:
    """Which code of upstream judged the start-up, by repository, and how many guards it decided.

    `release` is null if the launch states none: then all that the tables have judged it, and the numbers are the
    newest's.
    """
    judged = {item.repo: item for item in report.judged_by}
    releases = Counter(item.repo for item in report.judged_by)
    paths = {tree.repo: tree.path for tree in report.launch.reading.upstream}
    return [
        {
            "repository": item.repo,
            "source": item.source,
            "path": paths.get(item.repo) if item.source == "upstream" else None,
            "release": item.release if releases[item.repo] == 1 else None,
            "evaluated": item.evaluated - item.num_open,
            "open": item.num_open,
            "unreadable": item.unreadable,
        }
        for item in judged.values()
    ]


def undecided_json(item: Undecided) -> dict[str, Any]:
    return {"reason": item.reason, "needs": list(item.needs), "location": place_json(item.location), "do": item.do}


def presumed_json(item: Presumed) -> dict[str, Any]:
    value = list(item.value) if isinstance(item.value, tuple) else item.value
    return {"key": item.key, "value": value, "recipes_set": item.recipes_set, "recipes": item.recipes}


def not_checked_json(item: NotChecked) -> dict[str, Any]:
    return {"rule": item.rule.id, "needs": list(item.needs)}


def finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule.id,
        **_guard_json(finding),
        "title": finding.rule.title,
        "severity": finding.severity,
        "effect": finding.effect,
        "stage": finding.stage,
        "message": finding.problem.message,
        "found": finding.problem.found,
        "expected": finding.problem.wanted,
        "keys": list(finding.keys),
        "location": place_json(finding.location),
        "presumed": [presumed_json(item) for item in finding.presumed],
        "fixes": [
            {"overrides": list(fix.overrides), "cli": list(fix.cli), "effect": fix.effect}
            | ({"without": list(fix.without)} if fix.without else {})
            | ({"lines": list(fix.lines)} if fix.lines else {})
            for fix in finding.fixes
        ],
        "source": sources_json(finding.rule.source),
    }


def _guard_json(finding: Finding) -> dict[str, str]:
    return {"guard": finding.problem.guard} if finding.problem.guard else {}


def sources_json(sources: Iterable[Source]) -> list[dict[str, str]]:
    names = ("repo", "path", "qualname", "contains", "absent", "versions", "where")
    return [{name: getattr(source, name) for name in names if getattr(source, name)} for source in sources]


def dump(data: dict[str, Any]) -> str:
    r"""The object as text: one line per key, and one per entry of a list of objects.

    Secrets are removed. Unprintable characters are escaped, and so is text that a CI runner would take for a command.

    >>> print(dump({"b": ["\u202e", "##[x]"], "a": [{"c": "é"}]}))
    {
      "b": ["\u202e", "#\u0023[x]"],
      "a": [
        {"c": "é"}
      ]
    }
    """
    lines = ",\n".join(f"  {_compact(key)}: {_entries(value)}" for key, value in harmless(data).items())
    return f"{{\n{lines}\n}}"


def _entries(value: Any) -> str:
    """The objects of a list, and the entries of a fact table, on one line each; anything else on a single line."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return "[\n" + ",\n".join(f"    {_compact(item)}" for item in value) + "\n  ]"
    if isinstance(value, dict) and any(isinstance(item, dict) for item in value.values()):
        return "{\n" + ",\n".join(f"    {_compact(key)}: {_compact(item)}" for key, item in value.items()) + "\n  }"
    return _compact(value)


def _compact(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)  # a date of a YAML
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)
    return text.replace("##[", "#\\u0023[").replace("##vso[", "#\\u0023vso[")


def harmless(value: Any) -> Any:
    """The data in types that JSON can represent, with secrets removed from every text."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {harmless(name): harmless(item) for name, item in value.items()}
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # JSON has no such numbers
    return [harmless(item) for item in value] if isinstance(value, (list, tuple)) else value
