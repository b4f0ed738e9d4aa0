"""Claims of the skill on FSDP, read off every release's own sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

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


@pytest.mark.upstream
def test_megatron_fsdp_saves_the_names_of_a_stage(upstream: Path) -> None:
    """The wrapper saves the plain state dict; only `sharded_state_dict` adds a stage's first layer to its names."""
    files = sorted(upstream.glob("megatron-core-*/megatron/core/distributed/fsdp/mcore_fsdp_adapter.py"))
    assert len(files) >= 5
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "self.state_dict_for_save_checkpoint = self.state_dict\n" in text, file
        assert "sharded_state_dict" not in text, file


@pytest.mark.upstream
def test_gated_delta_nets_are_split_from_0_18_on(upstream: Path) -> None:
    read = 0
    for release in upstream.glob("megatron-core-*"):
        file = release / "megatron/core/transformer/fsdp_dtensor_checkpoint.py"
        if file.exists():
            version, text = Version(release.name.removeprefix("megatron-core-")), file.read_text(encoding="utf-8")
            assert ("def handle_gdn_in_state_dict" in text) == (version >= Version("0.18")), version
            split = "split_dtensor(" in (segment_of(file, "handle_gdn_in_state_dict") or "")
            assert split == (version >= Version("0.19")), version
            read += 1
    assert read >= 4


@pytest.mark.upstream
def test_adam_keeps_dtensors_from_2_14_on(upstream: Path) -> None:
    files = sorted(upstream.glob("transformer-engine-2.*/transformer_engine/pytorch/optimizers/fused_adam.py"))
    assert len(files) >= 6
    for file in files:
        version = Version(file.parents[3].name.removeprefix("transformer-engine-"))
        text = file.read_text(encoding="utf-8")
        assert ("DTensor.from_local" in text) == (version >= Version("2.14")), version
