"""A file that a script sources from root's home: its own dot files are harmless, a model's options are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import rules_for

HOME = "/".join(("", "root"))  # no path of a machine is committed


@pytest.mark.parametrize(
    ("sourced", "verdict"),
    [(f"{HOME}/slime/scripts/models/qwen3-30B-A3B.sh", "undecided"), (f"{HOME}/.bashrc", "ok"), ("/etc/profile", "ok")],
)
def test_a_models_options_below_root_are_not_read_as_nothing(tmp_path: Path, sourced: str, verdict: str) -> None:
    """slime's examples/multi_agent sources its model's options by that path."""
    start = "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 1"
    options = "${MODEL_ARGS[@]}" if verdict == "undecided" else ""
    file = tmp_path / "run.sh"
    file.write_text(f"source {sourced}\n{start} {options}\n")
    assert check_launch(load_launch(str(file), LoadOptions()), rules_for, fixes=False).verdict == verdict
