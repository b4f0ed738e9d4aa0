"""How a job starts hcp itself, so that no file of the job's folder is imported in the place of a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from megatron_hcp.ground.child import Child, run_child

ENTRY = """import os, sys
sys.path = [path for path in sys.path if path not in ("", ".", os.getcwd())]
try:
    from megatron_hcp.__main__ import start
except ImportError as error:
    why = f"hcp: found no megatron-hcp in {sys.executable} ({error}); install it where the job runs, in its image"
    sys.exit(why if os.environ.get("SLURM_PROCID", "0") == "0" else 0)
start()"""
"""`python -m` would search the job's folder first, which may hold a file such as json.py; before Python 3.11 there is
no option against that. Where hcp is missing, one task says so."""


def own_command(*words: str) -> list[str]:
    """`hcp WORDS` with the Python that runs this."""
    return [sys.executable, "-c", ENTRY, *words]


def run_hcp(words: Sequence[str], timeout_s: float) -> Child:
    """Runs `hcp WORDS` in the folder from which the job was submitted.

    Raises:
        OSError: it cannot be started.
    """
    folder = os.environ.get("SLURM_SUBMIT_DIR")
    return run_child(
        own_command(*words), timeout_s=timeout_s, folder=folder if folder and os.path.isdir(folder) else None
    )
