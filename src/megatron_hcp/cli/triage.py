"""`hcp triage`: the first failure of a dead job, and whether context parallelism is active in a running one."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from megatron_hcp.cli.options import assume_option, beside_options, dialect_option, format_option
from megatron_hcp.cli.screen import ProgressLine, say
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible

if TYPE_CHECKING:
    from pathlib import Path

    from megatron_hcp.launch.fact import Beside, Dialect
    from megatron_hcp.triage.conclude import Diagnosis
    from megatron_hcp.triage.inputs.dry_run import DryRunRefusal
    from megatron_hcp.triage.is_cp_on import CpPlan


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--launch", metavar="TARGET", help="The job's launch; its groups and sizes are what to expect.")
@click.option("--dryrun", metavar="FILE", help="JSON of `hcp dryrun` for this launch: evidence beside the logs.")
@click.option("--follow", is_flag=True, help="Wait until the logs show that the job failed or ended.")
@dialect_option
@assume_option("State facts: arch=sm90 world_size=32.")
@beside_options
@format_option("text", "json")
def triage(
    logs: Sequence[str],
    launch: str | None,
    dryrun: str | None,
    follow: bool,
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
    there is neither a failure nor a training step. With --follow it waits: for the first failure, or for the end of the
    job, by the log's own words; then it reports and exits as for a job that has ended.
    """
    from dataclasses import replace

    from megatron_hcp.triage.report import diagnosis_document
    from megatron_hcp.triage.screen_text import diagnosis_text

    refused = _refused(dryrun)
    plan = _plan(launch, dialect, tuple(assumes), beside)
    diagnosis, unread = _followed(logs, plan) if follow else _looked(logs, plan)
    diagnosis = replace(diagnosis, dry_run=refused)
    for path, why in unread:
        say([f"hcp triage: {path} is not read: {why}"], err=True)
    if fmt == "json":
        click.echo(diagnosis_document(diagnosis, launch))
    else:
        say(diagnosis_text(diagnosis, launch).split("\n"))
    return 0 if diagnosis.ok else 4 if diagnosis.state == "unclear" else 1


def _looked(logs: Sequence[str], plan: CpPlan) -> tuple[Diagnosis, Sequence[tuple[Path, str]]]:
    """What the logs show, and what was not read."""
    from dataclasses import replace

    from megatron_hcp.triage.inputs.sources import find_logs
    from megatron_hcp.triage.read import triage as read_logs

    found = find_logs(logs)
    line = ProgressLine(first_s=2, pause_s=0.5)
    try:
        diagnosis = read_logs(found.paths, plan, _progress(line, found.size()), found.dumps)
        return replace(diagnosis, binary=(*diagnosis.binary, *found.binary)), found.unread
    except PermissionError as error:
        name = visible(os.fsdecode(error.filename)) if error.filename else "a log"
        raise HcpError(f"{name}: {error.strerror}", wanted="readable files") from None
    finally:
        line.clear()


def _followed(logs: Sequence[str], plan: CpPlan) -> tuple[Diagnosis, Sequence[tuple[Path, str]]]:
    """The same of a running job, once it failed or ended; files that are empty so far are waited for."""
    from megatron_hcp.triage.inputs.follow import follow
    from megatron_hcp.triage.inputs.sources import find_logs

    _refuse_streams(logs)

    def waiting(error: HcpError) -> None:
        if not all(map(os.path.exists, logs)):
            raise error

    def state() -> dict[Path, tuple[int, int]]:
        _refuse_streams(logs)  # also one that has taken a file's place
        try:
            return find_logs(logs).state()
        except HcpError as error:
            waiting(error)
            return {}

    def look() -> tuple[Diagnosis, Sequence[tuple[Path, str]]] | None:
        try:
            return _looked(logs, plan)
        except HcpError as error:
            waiting(error)
            return None

    found = follow(look, state, lambda said: said and said[0].end())
    assert found is not None
    return found


def _refuse_streams(logs: Sequence[str]) -> None:
    """Raises HcpError for what cannot be read again and again: anything but files and folders that are on a disk."""
    for log in logs:
        try:
            status = os.stat(log)
        except (OSError, ValueError):
            status = None  # a job's id, or not there yet
        is_kept = status is None or stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
        if log == "-" or not is_kept or (status is not None and _is_of_the_kernel(status)):
            raise HcpError(
                f"{visible(log)}: found a stream with --follow",
                wanted="files or folders, which can be read again",
                do="write the stream to a file: kubectl logs --follow … >pod.log",
            )


def _is_of_the_kernel(status: os.stat_result) -> bool:
    """Whether it lies in /proc or /sys, where a file has no length and a read may wait."""
    for place in ("/proc", "/sys"):
        try:
            if os.stat(place).st_dev == status.st_dev != os.stat("/").st_dev:
                return True
        except OSError:
            continue
    return False


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
