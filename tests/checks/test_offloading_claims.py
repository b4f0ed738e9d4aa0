"""A claim of the skill on offloading, read off every Transformer Engine's own sources."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.upstream
def test_attention_under_cp_marks_no_tensor_for_offloading(upstream: Path) -> None:
    files = sorted(upstream.glob("transformer-engine-2.*/transformer_engine/pytorch/**/context_parallel.py"))
    assert len(files) >= 5
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "class AttnFuncWithCPAndQKVOA2A" in text and "mark_activation_offload" not in text, file
