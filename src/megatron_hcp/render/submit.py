"""Passes a rendered job to Slurm: tests it (`sbatch --test-only`) and submits it."""

from __future__ import annotations

import os
import re

from megatron_hcp.ground.child import Child, run_child
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible

_PREFIX = re.compile(r"^sbatch: (?:error: )?")

_TIMEOUT_S = 300
_NOT_REACHED = re.compile(
    "failed to fetch config|could not establish a configuration source|unable to contact slurm controller|"
    "connection refused|unable to establish configuration source",
    re.I,
)
"""What sbatch says if it could not evaluate the job at all."""


def ask(script: str) -> str:
    """What `sbatch --test-only` says about a script that Slurm would accept: when and where it would start.

    Raises:
        HcpError: there is no sbatch here, Slurm cannot be reached, or it rejects the job; with the reason.
    """
    return _sbatch(script, "--test-only").stderr.strip().removeprefix("sbatch: ")


def submit(script: str) -> str:
    """The id of the job that `sbatch` created from a script.

    Raises:
        HcpError: as `ask`.
    """
    return _sbatch(script, "--parsable").stdout.strip()


def make_log_folder(script: str) -> str | None:
    """The folder of the job's log if it had to be created, because Slurm opens the log before the script runs; or None.

    Raises:
        HcpError: it cannot be created.
    """
    match = re.search(r"^#SBATCH --output=([^#\n]*[^#\s])", script, re.M)
    folder = os.path.dirname(match[1]) if match else ""
    if not folder or "%" in folder or os.path.isdir(folder):
        return None
    try:
        os.makedirs(folder)
    except OSError as error:
        raise HcpError(
            f"logs: cannot create {visible(folder)}: {error.strerror}",
            wanted="a folder that Slurm can write to",
            do="name another",
        ) from None
    return folder


def _sbatch(script: str, option: str) -> Child:
    # Pass it on standard input: Slurm keeps a copy, whereas a file might change in the meantime.
    try:
        done = run_child(["sbatch", option], input=script, timeout_s=_TIMEOUT_S)
    except OSError as error:
        raise HcpError(
            f"found no sbatch ({error.strerror})",
            wanted="a node that can submit jobs",
            do="write the script with -o FILE, and submit it there",
        ) from None
    if done.status is None:
        raise HcpError(f"sbatch {option}: no answer that ends within {_TIMEOUT_S} s", do="run it where sinfo works")
    if done.status:
        said = [_PREFIX.sub("", line) for line in done.stderr.splitlines() if line.startswith("sbatch: error: ")]
        why = visible("; ".join(said or done.stderr.splitlines()))[:400] or f"exit code {done.status}"
        if _NOT_REACHED.search(done.stderr):
            raise HcpError(
                f"sbatch {option}: could not reach Slurm: {why}",
                wanted="an answer from its controller",
                do="run it where sinfo works",
            )
        raise HcpError(f"sbatch {option}: Slurm rejects the job: {why}", wanted="one that it accepts", do="correct it")
    return done
