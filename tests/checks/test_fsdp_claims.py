"""Claims of the skill on FSDP, read off every release's own sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.judge.anchored import segment_of

FOLDER = "megatron/core/distributed"


@pytest.mark.upstream
def test_fsdp2_does_not_take_the_argument_of_the_last_step(upstream: Path) -> None:
    broken = set()
    for release in upstream.glob("megatron-core-*"):
        last = segment_of(release / FOLDER / "finalize_model_grads.py", "finalize_model_grads") or ""
        base = segment_of(release / FOLDER / "data_parallel_base.py", "_BaseDataParallel.finish_grad_sync") or ""
        own = segment_of(
            release / FOLDER / "torch_fully_sharded_data_parallel.py", "TorchFullyShardedDataParallel.finish_grad_sync"
        )
        if "finish_grad_sync(force_all_reduce" in last and "force_all_reduce" not in (own or base):
            broken.add(release.name.removeprefix("megatron-core-"))
    assert {version.rsplit(".", 1)[0] for version in broken} == {"0.16", "0.17", "0.18"}


@pytest.mark.upstream
def test_fsdp2_scales_no_gradient_in_any_release(upstream: Path) -> None:
    releases = sorted(upstream.glob("megatron-core-*"))
    assert len(releases) >= 5
    for release in releases:
        own = (release / FOLDER / "torch_fully_sharded_data_parallel.py").read_text(encoding="utf-8")
        base = segment_of(release / FOLDER / "data_parallel_base.py", "_BaseDataParallel.scale_gradients") or ""
        assert "def scale_gradients" not in own and base.rstrip().endswith("pass"), release
