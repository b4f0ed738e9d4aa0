"""The words that a rendered job starts its training with, as bash makes them."""

from __future__ import annotations

import subprocess
from typing import Any

TRAIN = "srun torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --context-parallel-size 2 --seq-length 8192\n"


def launch_of(script: str, environment: dict[str, str] | None = None, **options: Any) -> list[str]:
    """The words that a job's script makes of its launch."""
    begin = script.index("# Commands and conditions")
    words = script[begin : script.index("# ---- the job's own folder")]
    text = f"set -euo pipefail\n{words}printf '%s\\n' \"${{launch[@]}}\""
    ran = subprocess.run(["bash", "-c", text], capture_output=True, text=True, env=environment, **options)
    assert not ran.returncode, ran.stderr
    return ran.stdout.splitlines()
