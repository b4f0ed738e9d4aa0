"""A rendered job given to Slurm: asked about (`sbatch --test-only`), and submitted."""

from __future__ import annotations

import os
import re
import subprocess

from hcp.core.errors import HcpError
from hcp.core.visible import visible

_PREFIX = re.compile(r"^sbatch: (?:error: )?")

_NOT_REACHED = re.compile(
    "failed to fetch config|could not establish a configuration source|unable to contact slurm controller|"
    "connection refused|unable to establish configuration source",
    re.I,
)
"""What sbatch says where it never came to judge the job."""


def ask(script: str) -> str:
    """What `sbatch --test-only` says about a script that Slurm would take: when and where it would start.

    Raises:
        HcpError: there is no sbatch here, Slurm cannot be reached, or it refuses the job; it says why.
    """
    return _sbatch(script, "--test-only").stderr.strip().removeprefix("sbatch: ")


def submit(script: str) -> str:
    """The id of the job that `sbatch` made of a script.

    Raises:
        HcpError: as `ask`.
    """
    return _sbatch(script, "--parsable").stdout.strip()


def make_log_folder(script: str) -> str | None:
    """The folder of the job's log, where it had to be made: Slurm opens the log before the script runs; else None.

    Raises:
        HcpError: it cannot be made.
    """
    match = re.search(r"^#SBATCH --output=([^#\n]*[^#\s])", script, re.M)
    folder = os.path.dirname(match[1]) if match else ""
    if not folder or "%" in folder or os.path.isdir(folder):
        return None
    try:
        os.makedirs(folder)
    except OSError as error:
        raise HcpError(
            f"logs: cannot make {visible(folder)}: {error.strerror}; wanted a folder that Slurm can write the log to; "
            "name another"
        ) from None
    return folder


def _sbatch(script: str, option: str) -> subprocess.CompletedProcess[str]:
    # On its standard input: Slurm keeps a copy, and what was written to a file may change meanwhile.
    try:
        done = subprocess.run(["sbatch", option], input=script, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise HcpError(
            f"found no sbatch to run ({error.strerror}); wanted a node that submits jobs; write the script with "
            "-o FILE, and submit it there"
        ) from None
    if done.returncode:
        said = [_PREFIX.sub("", line) for line in done.stderr.splitlines() if line.startswith("sbatch: error: ")]
        why = visible("; ".join(said or done.stderr.splitlines()))[:400] or f"exit code {done.returncode}"
        if _NOT_REACHED.search(done.stderr):
            raise HcpError(
                f"sbatch {option}: Slurm could not be asked: {why}; wanted an answer of its controller; run it where "
                "sinfo answers"
            )
        raise HcpError(f"sbatch {option}: Slurm refuses the job: {why}; wanted one that it takes; correct it")
    return done
