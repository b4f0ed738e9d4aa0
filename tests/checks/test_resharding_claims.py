"""Claims of the skill on resharding, read off every release's own sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from megatron_hcp.judge.anchored import segment_of

INFERENCE = ("contexts/dynamic_context.py", "contexts/static_context.py", "engines/dynamic_engine.py")


@pytest.mark.upstream
def test_inference_contexts_and_engines_know_no_context_parallelism(upstream: Path) -> None:
    read = 0
    for release in sorted(upstream.glob("megatron-core-*")):
        for name in INFERENCE:
            file = release / "megatron/core/inference" / name
            if file.exists():
                text = file.read_text(encoding="utf-8")
                assert "context_parallel" not in text, file
                read += 1
    assert read >= 15


@pytest.mark.upstream
def test_bridge_loads_at_cp_1(upstream: Path) -> None:
    releases = sorted(upstream.glob("megatron-bridge-*"))
    assert len(releases) >= 2
    for release in releases:
        loads = segment_of(release / "megatron/bridge/training/model_load_save.py", "load_megatron_model")
        assert loads is not None and "model_cfg.context_parallel_size = 1" in loads, release
        assert "model_cfg.hierarchical_context_parallel_sizes = None" in loads, release


def bridges(upstream: Path) -> dict[Version, Path]:
    """Bridge's checkpointing module in each release."""
    files = upstream.glob("megatron-bridge-*/megatron/bridge/training/checkpointing.py")
    found = {Version(file.parents[3].name.removeprefix("megatron-bridge-")): file for file in files}
    assert len(found) >= 2
    return found


@pytest.mark.upstream
def test_bridge_keeps_random_state_per_rank_with_experts(upstream: Path) -> None:
    for version, file in bridges(upstream).items():
        text = segment_of(file, "get_rng_state") or ""
        assert "if ep_size > 1:" in text and "(pp_size, tp_size, dp_size)" in text, version


@pytest.mark.torch
def test_random_state_of_another_number_of_ranks_has_another_key() -> None:
    from megatron.core.dist_checkpointing.mapping import ShardedObject

    eight, four = (ShardedObject("rng_state", [], (1, 1, ranks), (0, 0, 0)).unique_key for ranks in (8, 4))
    assert eight != four


@pytest.mark.upstream
def test_bridge_looks_for_an_optimizer_that_was_not_saved(upstream: Path) -> None:
    for version, file in bridges(upstream).items():
        text = file.read_text(encoding="utf-8")
        assert 'optimizer.load_state_dict(state_dict["optimizer"])' in text, version
        assert ("ignore_optimizer_state" in text) == (version >= Version("0.7")), version


@pytest.mark.upstream
def test_bridge_exports_over_gloo_and_not_beside_fsdp_dtensor(upstream: Path) -> None:
    for version, file in bridges(upstream).items():
        bridge = file.parents[1] / "models/conversion/auto_bridge.py"
        export = segment_of(bridge, "AutoBridge.export_ckpt") or ""
        assert 'temporary_distributed_context(backend="gloo")' in export, version
        checks = (file.parent / "config.py").read_text(encoding="utf-8")
        refused = "also_save_hf_checkpoint=True is not supported together with ckpt_format='fsdp_dtensor'" in checks
        assert refused == (version >= Version("0.6")), version


@pytest.mark.upstream
def test_the_step_stays_out_of_the_common_state_from_0_16_on(upstream: Path) -> None:
    read = 0
    for release in upstream.glob("megatron-core-*"):
        version = Version(release.name.removeprefix("megatron-core-"))
        file = release / "megatron/core/optimizer/distrib_optimizer.py"
        text = segment_of(file, "DistributedOptimizer.sharded_param_state_dp_reshardable")
        if text is not None:
            assert ("if key == 'step':" in text) == (version >= Version("0.16")), version
            assert "tensors[key] = LocalNonpersistentObject(tensors[key])" in text, version
            read += 1
    assert read >= 4


@pytest.mark.upstream
def test_the_functions_own_default_cannot_be_saved_from_0_16_on(upstream: Path) -> None:
    read = 0
    for release in upstream.glob("megatron-core-*"):
        version, core = Version(release.name.removeprefix("megatron-core-")), release / "megatron/core"
        own = segment_of(core / "optimizer/distrib_optimizer.py", "DistributedOptimizer.sharded_state_dict") or ""
        if version >= Version("0.13"):
            assert "'distrib_optim_sharding_type', 'fully_sharded_model_space'" in own, version
            kept = (core / "dist_checkpointing/mapping.py").read_text(encoding="utf-8")
            refused = "ShardedTensor.flattened_range is not supported" in kept
            assert refused == (version >= Version("0.16")), version
            read += 1
    assert read >= 5
