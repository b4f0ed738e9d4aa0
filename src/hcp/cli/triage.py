"""`hcp triage`: the first failure of a dead job, and whether context parallelism is active in a running one."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hcp.cli.options import assume_option, dialect_option, format_option
from hcp.core.errors import HcpError

if TYPE_CHECKING:
    from hcp.launch.fact import Dialect
    from hcp.triage.is_cp_on import CpPlan


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--launch", metavar="TARGET", help="The launch of the job: its groups and sizes are the plan.")
@dialect_option
@assume_option("State a fact: arch=sm90 world_size=32.")
@format_option("text", "json")
def triage(logs: Sequence[str], launch: str | None, dialect: Dialect | None, assumes: Sequence[str], fmt: str) -> int:
    """Read the logs of a dead or suspicious job.

    LOG is a file, a folder of logs, or - for standard input. Gives the rank and node that failed first, the cause
    with the rule that knows it, and the next command; for a job that runs, whether context parallelism is really on.
    Exits with 1 if a failure was found, or context parallelism is off.
    """
    from hcp.triage.read import triage as read_logs
    from hcp.triage.report import SPOOL, diagnosis_json, diagnosis_text
    from hcp.triage.scan import find_logs, has_text

    plan = _plan(launch, dialect, tuple(assumes))
    with tempfile.TemporaryDirectory(prefix=SPOOL) as folder:
        paths = find_logs([_spooled(Path(folder)) if name == "-" else Path(name) for name in logs])
        try:
            if not any(map(has_text, paths)):
                raise HcpError(
                    f"found no text in {', '.join(logs)}; wanted the job's logs; a job that wrote nothing "
                    "may have had no folder for its output (SLURM011)"
                )
            diagnosis = read_logs(paths, plan, _progress(sum(path.stat().st_size for path in paths)))
        except OSError as error:
            raise HcpError(f"{error.filename or 'a log'}: {error.strerror}; wanted readable files") from None
        finally:
            if sys.stderr.isatty():
                click.echo("\r\x1b[K", nl=False, err=True)
        if fmt == "json":
            click.echo(json.dumps(diagnosis_json(diagnosis, launch), indent=2, ensure_ascii=False))
        else:
            click.echo(diagnosis_text(diagnosis, launch))
    return 0 if diagnosis.ok else 1


def _plan(launch: str | None, dialect: Dialect | None, assumes: tuple[str, ...]) -> CpPlan:
    from hcp.triage.is_cp_on import CpPlan

    if launch is None and not assumes:
        return CpPlan()
    from hcp.triage.expected import plan_of_assumptions, plan_of_launch

    if launch is None:
        return plan_of_assumptions(assumes)
    return plan_of_launch(launch, dialect, assumes)


def _spooled(folder: Path) -> Path:
    path = folder / "stdin"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
    return path


def _progress(total: int) -> Callable[[int], None]:
    """Says on a terminal how far reading is, once it lasts two seconds."""
    begun = shown = time.monotonic()
    done = 0
    terminal = sys.stderr.isatty()

    def advanced(count: int) -> None:
        nonlocal done, shown
        done += count
        now = time.monotonic()
        if terminal and now - begun > 2 and now - shown > 0.5:
            shown = now
            rate = done / (now - begun) / 1e6
            text = f"reading: {done / 1e6:.0f} of {total / 1e6:.0f} MB, {rate:.0f} MB/s"
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)

    return advanced
