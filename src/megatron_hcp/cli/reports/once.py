"""Findings as a person reads them: each cause once, under the fix that clears it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from megatron_hcp.cli.reports.words import numbered
from megatron_hcp.judge.report import Finding


def once(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with one for all guards of a function that the same first fix satisfies: releases reword them."""
    same: dict[object, list[Finding]] = {}
    for finding in findings:
        is_guard = bool(finding.problem.guard and finding.fixes)
        key = (finding.rule.id, finding.role, finding.location, finding.fixes[0]) if is_guard else id(finding)
        same.setdefault(key, []).append(finding)
    return _each_fix_once([_standing_for(group) for group in same.values()])


def _each_fix_once(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, each fix under the first error or warning that it clears, upstream's guards last; an info keeps its
    own. One that another's first fix clears follows from that, one whose fixes all stand under others of its severity
    from them: the fix names it."""
    shown: dict[str, Finding] = {}
    first: dict[str, Finding] = {}
    kept: dict[int, Finding] = {}
    also: dict[str, list[str]] = {}
    for place, finding in sorted(enumerate(findings), key=lambda pair: bool(pair[1].problem.guard)):
        if finding.severity == "info":
            kept[place] = finding
            continue
        own = {repr(fix._replace(effect="")): fix for fix in finding.fixes}
        new = {text: fix for text, fix in own.items() if text not in shown}
        same = next((text for text in own if text in first and first[text].severity == finding.severity), None)
        if same is None and own and not new and shown[one := next(iter(own))].severity == finding.severity:
            same = one
        if same is not None:
            also.setdefault(same, []).append(finding.id)
            continue
        first |= dict.fromkeys(list(own)[:1], finding)
        shown |= dict.fromkeys(new, finding)
        kept[place] = finding._replace(fixes=tuple(new.values()))
    return [_naming(finding, also) for _, finding in sorted(kept.items(), key=lambda pair: pair[0])]


def _naming(finding: Finding, also: Mapping[str, Sequence[str]]) -> Finding:
    """The finding, its fixes with the ids of what they clear beside it."""
    fixes = []
    for fix in finding.fixes:
        ids = also.get(repr(fix._replace(effect="")), ()) if finding.severity != "info" else ()
        fixes.append(fix._replace(effect=f"{fix.effect}; clears {', '.join(ids)} too") if ids else fix)
    return finding._replace(fixes=tuple(fixes))


def _standing_for(group: Sequence[Finding]) -> Finding:
    last = group[-1]
    if len(group) == 1:
        return last
    message = f"{last.problem.message}, as {numbered(len(group) - 1, 'other guard')} would"
    return last._replace(problem=last.problem._replace(message=message))
