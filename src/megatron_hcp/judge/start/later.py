"""What a newer release refuses at start-up, and the stated one does not check: what it forbids may not work there."""

from __future__ import annotations

from collections.abc import Iterable

from megatron_hcp.judge.report import Finding
from megatron_hcp.judge.start.judged import judged_by_newer
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.rule import Rule
from megatron_hcp.validators.outcome import Judgement


def refused_since(launch: Launch, judged: Judgement, rules: Iterable[Rule], fired: list[Finding]) -> list[Finding]:
    """The refusals of newer releases by guards that the stated one lacks, as infos.

    Only of a launch that the stated release's start-up takes, and by releases that have all of its options. A guard
    that a later one dropped counts, too: what it forbids was made to work after the stated release.
    """
    refusing = [newer for newer in judged_by_newer(launch, judged) if newer.refusals]
    if not refusing:
        return []
    from megatron_hcp.judge.start.findings import findings_of
    from megatron_hcp.validators.table import guards_of

    releases = guards_of(judged.repo)
    checked = {guard.slug for guard, having in releases.items() if judged.release in having}
    found: dict[tuple[str, ...], Finding] = {}
    for newer in refusing:
        added = tuple(one for one in newer.refusals if one.guard.slug not in checked)
        for finding in findings_of(launch, (newer._replace(refusals=added),), rules, fired):
            found.setdefault(finding.keys, _as_info(finding, judged.release))
    return [*found.values()]


def _as_info(finding: Finding, stated: str) -> Finding:
    told = f"{stated} doesn't check it, but may not work with it: {finding.problem.message}"
    return finding._replace(problem=finding.problem._replace(message=told, fixes=(), severity="info"), severity="info")
