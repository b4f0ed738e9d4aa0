"""The harness over other frameworks' files: what it counts, and when it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MEGATRON = "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --swiglu --sft --lr 1\n"


def foreign(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, root / "lab", "foreign", "--corpus", folder], capture_output=True, text=True)


@pytest.mark.slow
def test_files_are_counted_by_what_came_of_them_and_a_wrong_dialect_fails(tmp_path: Path, root: Path) -> None:
    primus, slime = tmp_path / "AMD-AGI+Primus", tmp_path / "THUDM+slime"
    primus.mkdir()
    slime.mkdir()
    (primus / "a.yaml").write_text("work_group: amd\nmodel: {context_parallel_size: 2}\n")
    (primus / "b.yaml").write_text("a: 1\n")
    (slime / "run.sh").write_text(MEGATRON)
    done = foreign(root, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 files" in done.stdout and "0 faults" in done.stdout
    assert "1  Primus               bridge  refused by name" in done.stdout
    assert "1  slime                -       mlm" in done.stdout
    (primus / "c.sh").write_text(MEGATRON)
    done = foreign(root, tmp_path)
    assert done.returncode == 1 and "fault AMD-AGI+Primus/c.sh (not forced): mlm" in done.stdout
