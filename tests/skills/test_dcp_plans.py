"""What the skill of dynamic CP says of plans: its commands run, and its table of speed-ups is the benchmark's."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from megatron_hcp.skills.card import find_skill
from support.processes import HANG_S

ROOT = Path(__file__).resolve().parents[2]
SKILL = find_skill("dynamic-context-parallel")
TEXTS = [
    (SKILL / name).read_text(encoding="utf-8")
    for name in ("SKILL.md", "references/plans.md", "references/using.md", "references/accuracy.md")
]
COMMANDS = [
    shlex.split(line)[1:] for text in TEXTS for line in text.splitlines() if re.match(r" *hcp dcp (plan|show) ", line)
]
"""In the order of the texts, so that a plan is written before it is shown."""


@pytest.mark.slow
def test_the_commands_about_plans_run(hcp: Callable[..., CompletedProcess[str]], tmp_path: Path, root: Path) -> None:
    lengths = [json.dumps({"num_tokens": tokens}) for tokens in range(100, 20000, 100)]
    (tmp_path / "data.jsonl").write_text("\n".join(lengths))
    (tmp_path / "config.json").write_text((root / "examples/llama3_8b_config.json").read_text())
    profile = {
        "schema": "hcp.profile/1", "device": "some", "linear_s": 1e-4, "quadratic_s": 1e-9, "comm_type": "p2p",
        "inner": 1, "ranks_per_node": 8, "inside": {"kv_s": 1e-6, "a2a_s": 1e-6},
    }  # fmt: skip
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    assert len(COMMANDS) >= 9
    for words in COMMANDS:
        done = hcp(*words, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)


def rows(text: str, pattern: str) -> set[tuple[str, ...]]:
    return set(re.findall(pattern, text, re.MULTILINE))


@pytest.mark.slow
def test_the_table_of_speed_ups_is_the_benchmarks() -> None:
    """(GPUs, measured, estimated, error) for each kind of GPU."""
    done = subprocess.run(
        [sys.executable, ROOT / "lab", "dcp/public"], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    for gpu, before in (("h100", ""), ("gb200", r"[^|]+\| [^|]+\| ")):
        found = rows(
            done.stdout, rf"^{gpu} +([0-9]+) GPUs: measured ([0-9.]+), predicted ([0-9.]+), error ([+-][0-9]+%)"
        )
        shown = rows(TEXTS[-1], rf"^\|[^|]+\| ([0-9]+) \| ([0-9.]+) \| {before}([0-9.]+) \| ([+-][0-9]+%) \|")
        assert len(found) == 6 and shown == found
