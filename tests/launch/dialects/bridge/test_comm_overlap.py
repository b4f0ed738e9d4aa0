"""Bridge's comm_overlap section: what it sets replaces the model's field (`CommOverlapConfig.setup`)."""

from __future__ import annotations

import pytest

from support.rules import launch

SECTION = "comm_overlap.overlap_moe_expert_parallel_comm"
MODEL = "model.overlap_moe_expert_parallel_comm"


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (f"{SECTION}=true", True),
        (f"{SECTION}=true {MODEL}=false", True),
        (f"{MODEL}=true {SECTION}=false", False),
        (f"{MODEL}=true {SECTION}=null", True),
        (f"{MODEL}=true", True),
    ],
)
def test_what_the_section_sets_is_the_models(words: str, value: bool) -> None:
    assert launch("bridge", words).facts["overlap_moe_expert_parallel_comm"].value is value
