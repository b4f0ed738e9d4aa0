"""A judged document, without the protocol."""

from __future__ import annotations

from pathlib import Path

from megatron_hcp.lsp.judged import each_release, judged
from megatron_hcp.validators.upstreams import MEGATRON_LM


def test_the_releases_that_a_change_may_bring_in_are_read_before_it(tmp_path: Path) -> None:
    text = "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 8\n"  # options that every release has
    assert {*each_release(judged(text, str(tmp_path / "launch.sh")))} == {*MEGATRON_LM.releases}
