"""`hcp triage`: the first failure of a dead job, and whether context parallelism is active in a running one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from megatron_hcp.cli.options import assume_option, beside_options, dialect_option, format_option
from megatron_hcp.cli.screen import ProgressLine, say
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible

if TYPE_CHECKING:
    from megatron_hcp.launch.fact import Beside, Dialect
    from megatron_hcp.triage.inputs.dry_run import DryRunRefusal
    from megatron_hcp.triage.is_cp_on import CpPlan


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--launch", metavar="TARGET", help="The job's launch; its groups and sizes are what to expect.")
@click.option("--dryrun", metavar="FILE", help="JSON of `hcp dryrun` for this launch: evidence beside the logs.")
@dialect_option
@assume_option("State facts: arch=sm90 world_size=32.")
@beside_options
@format_option("text", "json")
def triage(
    logs: Sequence[str],
    launch: str | None,
    dryrun: str | None,
    dialect: Dialect | None,
    assumes: Sequence[str],
    beside: Beside,
    fmt: str,
) -> int:
    """Read the logs of a dead or suspicious job.

    LOG is a file, a folder of logs, a job id (files named after it in the given folders, or in . and logs), or - for
    standard input. Reports what failed first, on which rank and node, the log line that shows it, and what to do:
    stop, restart, or restart without a node. For a running job, reports whether context parallelism is active. Torch
    flight-recorder dumps next to the logs show which rank waited for which. Exits with 1 if a failure was found or
    context parallelism is off, and with 4 if the logs do not settle it: a line reports an error that is not known, or
    there is neither a failure nor a training step.
    """
    from dataclasses import replace

    from megatron_hcp.triage.inputs.sources import find_logs
    from megatron_hcp.triage.read import triage as read_logs
    from megatron_hcp.triage.report import diagnosis_document
    from megatron_hcp.triage.screen_text import diagnosis_text

    refused = _refused(dryrun)
    plan = _plan(launch, dialect, tuple(assumes), beside)
    found = find_logs(logs)
    line = ProgressLine(first_s=2, pause_s=0.5)
    try:
        diagnosis = read_logs(found.paths, plan, _progress(line, found.size()), found.dumps)
    except OSError as error:
        name = visible(os.fsdecode(error.filename)) if error.filename else "a log"
        raise HcpError(f"{name}: {error.strerror}", wanted="readable files") from None
    finally:
        line.clear()
    diagnosis = replace(diagnosis, dry_run=refused)
    for path, why in found.unread:
        say([f"hcp triage: {path} is not read: {why}"], err=True)
    if fmt == "json":
        click.echo(diagnosis_document(diagnosis, launch))
    else:
        say(diagnosis_text(diagnosis, launch).split("\n"))
    return 0 if diagnosis.ok else 4 if diagnosis.state == "unclear" else 1


def _refused(dryrun: str | None) -> tuple[DryRunRefusal, ...]:
    if dryrun is None:
        return ()
    from megatron_hcp.triage.inputs.dry_run import read_dry_run

    return read_dry_run(dryrun)


def _plan(launch: str | None, dialect: Dialect | None, assumes: tuple[str, ...], beside: Beside) -> CpPlan:
    from megatron_hcp.triage.is_cp_on import CpPlan

    if launch is None and not assumes:
        return CpPlan()
    from megatron_hcp.triage.expected import plan_of_assumptions, plan_of_launch

    if launch is None:
        return plan_of_assumptions(assumes)
    return plan_of_launch(launch, dialect, assumes, beside)


def _progress(line: ProgressLine, total: int) -> Callable[[int], None]:
    """What to call with each number of bytes that was read, out of `total`."""
    begun = time.monotonic()
    done = 0
    of = f" of {total / 1e6:.0f}" if total else ""

    def advanced(count: int) -> None:
        nonlocal done
        done += count
        rate = done / max(time.monotonic() - begun, 1e-9) / 1e6
        line.show(f"reading: {done / 1e6:.0f}{of} MB, {rate:.0f} MB/s")

    return advanced
