"""A check's report for a person: one line per finding, one per fix, one for what could not be checked."""

from __future__ import annotations

from typing import Any

import click

from hcp.launch.fact import Launch
from hcp.rules.report import Finding, OfferedFix, Report
from hcp.rules.rule import Severity

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
_MANY_RULES = 6


def report_text(report: Report, *, strict: bool = False) -> str:
    """The report as lines; colours are stripped by click where stdout is no terminal."""
    lines = [f"{report.launch.reading.target}: note: {note}" for note in report.launch.reading.notes]
    lines += [line for finding in report.findings for line in _finding_lines(report, finding)]
    lines += _not_checked_lines(report)
    lines.append(_summary_line(report, strict))
    return "\n".join(lines)


def show_text(launch: Launch) -> str:
    """The launch as it was read: every fact with its value, its origin and its place."""
    reading = launch.reading
    lines = [f"{reading.target}: {reading.dialect} ({reading.form})"]
    width = max((len(name) for name in launch.facts), default=0)
    for name, fact in sorted(launch.facts.items()):
        place = f"  {fact.location.file}:{fact.location.line}:{fact.location.column}" if fact.location else ""
        key = f"  {fact.key}" if fact.key else ""
        lines.append(f"  {name:<{width}}  {value_text(fact.value)}  [{fact.origin}]{key}{place}")
    for name, reason in sorted(launch.unknown.items()):
        if name not in launch.facts:
            lines.append(f"  {name:<{width}}  ?  [unknown] {reason}")
    if reading.unseen:
        lines.append(f"  keys that are not written count as unknown: {reading.unseen}")
    lines += [f"  note: {note}" for note in reading.notes]
    for other in reading.others:
        lines.append(f"  also checked: the model under {other.role}")
    return "\n".join(lines)


def value_text(value: Any) -> str:
    """A fact's value as a person writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return str(value)


def fix_text(launch: Launch, fix: OfferedFix) -> str:
    """What to type: flags for a Megatron-LM command line, overrides elsewhere."""
    if launch.dialect == "mlm":
        import shlex

        words = [*([shlex.join(fix.cli)] if fix.cli else []), *fix.lines]
        flags = ", ".join(fix.without)
        if words:
            return "; ".join(words) + (f" (without {flags})" if flags else "")
        return f"leave out {flags}" if flags else " ".join(fix.overrides)
    words = list(fix.overrides if launch.reading.form == "yaml" else fix.cli)
    return "; ".join([" ".join(words), *fix.lines] if words else fix.lines or fix.overrides)


def _finding_lines(report: Report, finding: Finding) -> list[str]:
    place = finding.location
    where = f"{place.file}:{place.line}:{place.column}" if place else report.launch.reading.target
    label = click.style(f"{finding.severity} {finding.rule.id}", fg=_COLOURS[finding.severity], bold=True)
    problem = finding.problem
    role = f" [{finding.role}]" if finding.role and finding.role != report.launch.reading.role else ""
    lines = [f"{where}: {label}{role} {problem.message} (found: {problem.found}; wanted: {problem.wanted})"]
    lines += [f"    fix: {fix_text(report.launch, fix)}  # {fix.effect}" for fix in finding.fixes]
    return lines


def _not_checked_lines(report: Report) -> list[str]:
    by_need: dict[str, list[str]] = {}
    for item in report.not_checked:
        by_need.setdefault(", ".join(item.needs), []).append(item.rule.id)
    if not by_need:
        return []
    parts = [
        f"{need} ({' '.join(rules) if len(rules) <= _MANY_RULES else f'{len(rules)} rules'})"
        for need, rules in sorted(by_need.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    ]
    return ["not checked, for want of: " + "; ".join(parts) + ". State what is known: --assume NAME=VALUE"]


def _summary_line(report: Report, strict: bool) -> str:
    counts = [_number(report.num_findings(severity), severity) for severity in SEVERITIES]
    verdict = "FAILED" if report.failed(strict) else "ok"
    colour = "red" if report.failed(strict) else "green"
    accepted = f", {len(report.accepted)} accepted" if report.accepted else ""
    return (
        f"{report.launch.reading.target}: {click.style(verdict, fg=colour, bold=True)}: {', '.join(counts)}{accepted}; "
        f"{_number(report.applied, 'rule')} applied, {len(report.not_checked)} not checked"
    )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
