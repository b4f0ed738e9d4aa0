"""What the card of packed-sequence-context-parallel says about upstream, read off every release's sources."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from megatron_hcp.judge.anchored import segment_of


def releases(upstream: Path, package: str) -> list[Path]:
    found = sorted(upstream.glob(f"{package}-*"))
    assert found
    return found


def number(release: Path) -> tuple[int, ...]:
    return tuple(map(int, release.name.rsplit("-", 1)[1].split(".")))


@pytest.mark.upstream
def test_the_cache_of_packed_data_is_kept_apart_by_the_multiple(upstream: Path) -> None:
    for release in releases(upstream, "megatron-bridge"):
        builders = sorted((release / "megatron/bridge/data/builders").glob("*.py"))
        assert any("_pad_seq_to_mult{self._pad_seq_to_mult}" in file.read_text() for file in builders), release


@pytest.mark.upstream
def test_what_happens_to_a_reported_loss_sum_by_release(upstream: Path) -> None:
    """references/loss.md: in 0.12 times CP; from 0.13 on not; from 0.15 on divided by at least 1."""
    for release in releases(upstream, "megatron-core"):
        file = release / "megatron/core/pipeline_parallel/schedules.py"
        text = segment_of(file, "forward_step_calc_loss") or segment_of(file, "forward_step")
        assert text is not None, release
        branch = next(
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.If) and ast.unparse(node.test) == "len(outputs) == 3"
        )
        done = "\n".join(map(ast.unparse, branch.body))
        assert bool(re.search(r"output_tensor \*= ", done)) == (number(release) < (0, 13)), release
        assert ("torch.clamp(num_tokens, min=1)" in done) == (number(release) >= (0, 15)), release
