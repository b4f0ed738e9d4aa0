"""A check's report with what upstream's own code did: its refusal, and the rules that it contradicts."""

from __future__ import annotations

from megatron_hcp.dryrun.ask import STAGES, DryRun, HowToRun, dry_run
from megatron_hcp.dryrun.report import as_json, lines
from megatron_hcp.judge.report import Finding, Report, UpstreamRun

_PASSED_AFTER = {"config": "arguments", "init": "model", "first-forward": "forward"}
"""A rule's stage, and the stage of a run after which a crash that it foretells did not happen."""


def with_dry_run(report: Report) -> Report:
    """The report, with a dry run of its launch.

    Raises:
        HcpError: as `dry_run`.
    """
    run = dry_run(report.launch, HowToRun())
    suspects = tuple(dict.fromkeys(finding.id for finding in report.findings if is_contradicted(finding, run)))
    return report._replace(run=UpstreamRun(run.verdict, as_json(run), tuple(lines(run)), suspects))


def is_contradicted(finding: Finding, run: DryRun) -> bool:
    """Whether an error foretells a crash at a stage that upstream's code passed on every rank asked about."""
    stage = _PASSED_AFTER.get(finding.stage)
    if finding.severity != "error" or finding.effect != "crash" or stage is None:
        return False
    return all(
        outcome.stage in STAGES and (outcome.error is None or STAGES.index(outcome.stage) > STAGES.index(stage))
        for outcome in run.outcomes
    ) and STAGES.index(run.ask.until) > STAGES.index(stage)
