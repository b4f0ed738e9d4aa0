"""Claims of the skill on offloading, read off every release's own sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from megatron_hcp.judge.anchored import segment_of
from megatron_hcp.launch.facts.known_options import revisions_with

OFFLOAD = "megatron/core/pipeline_parallel/fine_grained_activation_offload.py"
CONFIG = "megatron/core/transformer/transformer_config.py"


def cores(upstream: Path) -> dict[Version, Path]:
    """The releases of megatron-core that have module offloading."""
    found = {Version(folder.name.removeprefix("megatron-core-")): folder for folder in upstream.glob("megatron-core-*")}
    found = {version: folder for version, folder in found.items() if (folder / OFFLOAD).exists()}
    assert len(found) >= 4 and min(found) >= Version("0.16")
    return found


@pytest.mark.upstream
def test_attention_under_cp_marks_no_tensor_for_offloading(upstream: Path) -> None:
    files = sorted(upstream.glob("transformer-engine-2.*/transformer_engine/pytorch/**/context_parallel.py"))
    assert len(files) >= 5
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "class AttnFuncWithCPAndQKVOA2A" in text and "mark_activation_offload" not in text, file


@pytest.mark.upstream
def test_an_inline_reload_waits_for_no_copy(upstream: Path) -> None:
    for version, folder in cores(upstream).items():
        inline = segment_of(folder / OFFLOAD, "ChunkOffloadHandler.tensor_pop") or ""
        reload = segment_of(folder / OFFLOAD, "ChunkOffloadHandler.reload") or ""
        bulk = segment_of(folder / OFFLOAD, "ChunkOffloadHandler.bulk_reload_group") or ""
        assert "self.reload(tensor)" in inline and "wait_" not in inline + reload, version
        assert "wait_offload_event" in bulk, version


@pytest.mark.upstream
def test_what_modules_want_with_graphs(upstream: Path) -> None:
    for version, folder in cores(upstream).items():
        checks = segment_of(folder / CONFIG, "TransformerConfig.__post_init__") or ""
        new = version >= Version("0.18")
        assert ("fine_grained_offloading_max_inflight_offloads is not None" in checks) == new, version
        assert ("cuda_graph_warmup_steps must be greater than 0 when enabling" in checks) == new, version


@pytest.mark.upstream
def test_a_part_is_offloaded_from_0_19_on(upstream: Path) -> None:
    for version, folder in cores(upstream).items():
        text = (folder / CONFIG).read_text(encoding="utf-8")
        for field in ("activation_offload_fraction: float", "delta_offload_bytes_across_pp_ranks: int"):
            assert (field in text) == (version >= Version("0.19")), version


@pytest.mark.upstream
def test_the_options_of_layer_offloading_came_with_0_16(upstream: Path) -> None:
    """The field is older than every wheel read here; the options are of Megatron-LM's own list."""
    fields = sorted(upstream.glob("megatron-core-*/megatron/core/model_parallel_config.py"))
    assert len(fields) >= 5
    for file in fields:
        assert "cpu_offloading_num_layers: int" in file.read_text(encoding="utf-8"), file
    assert revisions_with("cpu_offloading_num_layers")[0] == "0.16.0"
    assert revisions_with("optimizer_cpu_offload")[0] == "0.12.0"
