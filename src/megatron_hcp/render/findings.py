"""What `hcp check` finds in a rendered job, and what the job presumes."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Finding, Undecided
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.render.environment import ASSUMED_ARCH
from megatron_hcp.render.job import Job
from megatron_hcp.render.targets.table import Target
from megatron_hcp.rules.registry import RULES


def findings_in(launch: Launch, script: str) -> tuple[list[Finding], list[Undecided]]:
    """The errors and warnings, by rule id, of a launch and of the script it was rendered into; and what is undecided.

    The launch decides everything about the training; the rendered script, read like any other, decides the rest. The
    target's own job settings (its #SBATCH lines) will not run.
    """
    # Upstream's own start-up judges the launch's settings, which the job only repeats.
    of_job = tuple(rule for rule in RULES if not rule.id.startswith("START"))
    training = tuple(rule for rule in RULES if not rule.id.startswith("SLURM"))
    reports = [
        check_launch(each, rules, fixes=False)
        for each, rules in ((_read_back(launch, script), of_job), (launch, training))
    ]
    found = {each.id: each for report in reports for each in report.findings if each.severity != "info"}
    return [found[rule_id] for rule_id in sorted(found)], list(reports[1].undecided)


def notes_on(job: Job, target: Target) -> list[str]:
    """What the job presumes because nothing states it."""
    name = posixpath.basename(job.program[-1]) if job.program else ""
    notes = [f"note: {visible(name)} seems not to train: then no verdict can say completed"] * ("inference" in name)
    if any(variable.why == ASSUMED_ARCH for variable in job.environment):
        notes.append(f"note: CUDA_DEVICE_MAX_CONNECTIONS=1: {ASSUMED_ARCH}")
    if target.is_slurm_script and job.site["time"] is None and not job.site["in_allocation"]:
        saves = f"the job saves {job.site['signal']} s before that limit"
        notes.append(f"note: no time limit is stated, so the partition's holds; {saves}")
    return notes


def _read_back(launch: Launch, script: str) -> Launch:
    if launch.reading.form == "yaml":  # its values are in a file that the script only refers to
        return launch
    assumed = {**launch.assumed, "log_directory": Fact("present", "assumed")}
    try:
        reading = read_text(script, "job.sbatch", dialect=launch.dialect)
    except HcpError:  # its program is one that the script reader does not recognise as a trainer
        return launch
    return build_launch(reading, assumed=assumed, model=launch.model)


def lines_of(found: Sequence[Finding], undecided: Sequence[Undecided]) -> Iterator[str]:
    """What `hcp check` finds in the job, which is written in any case."""
    for finding in found:
        stops = "; the job will stop in phase 0" if finding.severity == "error" else ""
        yield f"{finding.severity} {finding.id}: {finding.problem.message}{stops}"
    yield from (f"undecided: {item.reason}; {item.do}" for item in undecided)
