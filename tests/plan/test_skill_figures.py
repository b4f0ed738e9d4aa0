"""The planning skill quotes figures of the model: they are those that the model uses."""

from __future__ import annotations

from pathlib import Path

from megatron_hcp.plan.time.margin import UNCOVERED
from megatron_hcp.plan.time.step import BUFFER_PASSES, OPTIMIZER_BYTES

SKILL = Path(__file__).resolve().parents[2] / "skills" / "context-parallel-planning"
WORDS = {2: "two", 3: "three", 4: "four"}


def test_the_skill_quotes_the_least_margin_of_what_no_step_covers() -> None:
    assert f"`+-{UNCOVERED:.0%}`" in (SKILL / "SKILL.md").read_text(encoding="utf-8")


def test_the_formulas_quote_the_optimizers_bytes_and_passes() -> None:
    text = (SKILL / "references" / "formulas.md").read_text(encoding="utf-8")
    passes = f"{WORDS[BUFFER_PASSES]} passes over the rank's whole gradient buffer"
    assert f"| optimizer | {OPTIMIZER_BYTES} bytes per parameter of the shard, and {passes} |" in text
