"""The process that runs upstream's code: its limits of time and memory end it, and the answer says which."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.needs import UPSTREAM
from support.processes import HANG_S

pytestmark = [pytest.mark.torch, pytest.mark.upstream]

REQUEST: dict[str, Any] = {
    "roots": [str(UPSTREAM / "megatron-core-0.18.2")],
    "te": None,
    "words": [],
    "replaced": [],
    "is_world_stated": True,
    "is_model_stated": True,
    "environment": {},
    "world": 1,
    "gpus_per_node": 1,
    "ranks": [0],
    "until": "step",
    "seconds": 2,
    "memory": 2 << 30,
}


@pytest.mark.parametrize(
    ("code", "said"),
    [("while True: pass", '"ended": "SIGALRM"'), ("held = bytearray(4 << 30)", '"type": "MemoryError"')],
)
def test_a_program_without_end_and_one_that_takes_all_memory_are_ended(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "program.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "megatron_hcp.pretend"],
        input=json.dumps({**REQUEST, "program": str(tmp_path / "program.py")}),
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert said in done.stdout, done


@pytest.mark.parametrize("asked, wanted", [("16", 16), ("4", 8)])
def test_a_node_keeps_its_gpus_when_the_device_is_installed_again(tmp_path: Path, asked: str, wanted: int) -> None:
    code = f"""
import torch
from megatron_hcp.pretend.stand_ins import device
device.install({asked})
device.install()
raise SystemExit(torch.cuda.device_count() != {wanted})
"""
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
