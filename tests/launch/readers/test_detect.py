"""Telling a shell script from other texts, without a name to help."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.launch.readers.detect import looks_like_shell
from megatron_hcp.launch.readers.target import read_text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("#!/bin/bash\nls", True),
        ("#!/usr/bin/env bash\nls", True),
        ("#SBATCH -N 2\nls", True),
        ("torchrun pretrain_gpt.py --num-layers 2 \\\n  --bf16", True),
        ("export A=1\nsrun python x.py $A", True),
        ("A=(--x 1)\nfor i in 1 2; do\n  echo $i\ndone", True),
        ("#!/usr/bin/env python\nimport os", False),
        ("import os\n\ndef f():\n    return '--x'", False),
        ("model:\n  seq_length: 8\ntrain:\n  x: 1", False),
        ('{"a": "--x $y"}', False),
        ("", False),
        ("on: push\njobs:\n  a:\n    run: |\n      export A=1\n      python x.py --a $A \\\n        --b", False),
        ("model.context_parallel_size=4 model.cp_comm_type=a2a", False),
        ("Some prose about torchrun.", False),
        ("\0" * 100, False),
        ("x" * 100_000, False),
    ],
)
def test_a_shell_script_is_told_by_its_text(text: str, answer: bool) -> None:
    assert looks_like_shell(text) is answer


def test_a_script_with_python_inside_and_no_telling_name_is_read_as_a_script(root: Path) -> None:
    text = "export A=1\npython - <<'EOF'\nimport os\ndef f():\n    pass\nEOF\ntorchrun pretrain_gpt.py --num-layers 2\n"
    assert read_text(text, "<stdin>").form == "shell"
    for name in ("mlm_hcp.sbatch", "mlm_broken.sh"):
        assert looks_like_shell((root / "examples" / name).read_text(encoding="utf-8").partition("\n")[2])
