"""How a job starts hcp itself and its checks; no file of the job's folder is imported in the place of a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from megatron_hcp.ground.child import Child, run_child
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.resources import pack_dir

ENTRY = """import os, sys
sys.path = [path for path in sys.path if path not in ("", ".", os.getcwd())]
why = "hcp: found no megatron-hcp in {} ({}); install it where the job runs, in its image"
try: from megatron_hcp.__main__ import start
except ImportError as e: sys.exit(0 if os.environ.get("SLURM_PROCID", "0") != "0" else why.format(sys.executable, e))
start()"""
"""`python -m` would search the job's folder first, which may hold a file such as json.py; before Python 3.11 there is
no option against that. Where hcp is missing, one task says so."""


def own_command(*words: str) -> list[str]:
    """`hcp WORDS` with the Python that runs this."""
    return [sys.executable, "-c", ENTRY, *words]


_GRACE_S = 5.0


def run_hcp(words: Sequence[str], timeout_s: float, still: Callable[[], None] = lambda: None) -> Child:
    """Runs `hcp WORDS` in the folder from which the job was submitted, while `still` raises nothing.

    Raises:
        OSError: it cannot be started.
    """
    folder = os.environ.get("SLURM_SUBMIT_DIR")
    return run_child(
        own_command(*words),
        timeout_s=timeout_s,
        folder=folder if folder and os.path.isdir(folder) else None,
        is_stopped=lambda: bool(still()),  # type: ignore[func-returns-value]
        grace_s=_GRACE_S,
    )


def run_check(program: str, arguments: Sequence[str]) -> NoReturn:
    """Becomes a program of the pack's checks/, on whose path the job's folder is not.

    Raises:
        HcpError: there is no such program.
    """
    path = pack_dir("checks") / f"{program}.py"
    if not path.is_file():
        raise HcpError(f"{program}: no such check", wanted="a program of checks/", do="see `hcp verify --list`")
    # An empty entry in the path means the job's folder, whose files are not the check's modules.
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry not in ("", ".")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entries)}
    os.execve(sys.executable, [sys.executable, str(path), *arguments], environment)
