"""The test of the communication in the groups, which each rank runs before it trains."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.resources import pack_dir


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
