"""Claims about what a release has, refuses or sets, read off the releases' own sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version


def by_release(upstream: Path, package: str, pattern: str) -> dict[Version, str]:
    """The text of each release's files of that pattern, together."""
    found: dict[Version, str] = {}
    for folder in sorted(upstream.glob(f"{package}-*")):
        version = Version(folder.name.removeprefix(f"{package}-"))
        texts = [file.read_text(encoding="utf-8") for file in sorted(folder.glob(pattern))]
        if texts:
            found[version] = "".join(texts)
    assert len(found) >= 2
    return found


def begins(texts: dict[Version, str], word: str, first: str) -> None:
    """The word stands in the releases from `first` on, and in none before."""
    assert min(texts) < Version(first) <= max(texts)
    for version, text in texts.items():
        assert (word in text) == (version >= Version(first)), (word, version)


CONFIG = "megatron/core/transformer/transformer_config.py"
ENGINE = "verl/workers/engine/megatron/transformer_impl.py"


@pytest.mark.upstream
def test_offloading_is_throttled_from_0_18_on_and_taken_in_parts_from_0_19_on(upstream: Path) -> None:
    texts = by_release(upstream, "megatron-core", CONFIG)
    begins(texts, "fine_grained_offloading_max_inflight_offloads", "0.18")
    begins(texts, "activation_offload_fraction", "0.19")
    begins(texts, "fused_group_mlp", "0.19")


@pytest.mark.upstream
def test_the_paged_stash_excludes_layer_offloading_and_modules_of_experts(upstream: Path) -> None:
    texts = by_release(upstream, "megatron-core", CONFIG)
    begins(texts, "if self.moe_paged_stash:", "0.18")
    for version, text in texts.items():
        if version >= Version("0.18"):
            part = text.partition("if self.moe_paged_stash:")[2][:3000]
            assert "cpu_offloading" in part and "expert_fc1" in part and "moe_act" in part, version


@pytest.mark.upstream
def test_fused_kernels_of_dsa_are_chosen_from_0_19_on(upstream: Path) -> None:
    texts = by_release(upstream, "megatron-core", CONFIG)
    begins(texts, 'dsa_kernel_backend: Literal["none", "tilelang", "cudnn"] = "none"', "0.19")


@pytest.mark.upstream
def test_the_hierarchical_groups_take_the_nccl_section_hcp(upstream: Path) -> None:
    texts = by_release(upstream, "megatron-core", "megatron/core/parallel_state.py")
    for version, text in texts.items():
        if "hierarchical" in text:
            assert 'get_nccl_options("hcp"' in text or "get_nccl_options('hcp'" in text, version


@pytest.mark.upstream
def test_attention_has_its_own_fp8_recipe_from_2_8_on_and_a_16_bit_backward_before(upstream: Path) -> None:
    texts = by_release(upstream, "transformer-engine", "transformer_engine/pytorch/attention/**/*.py")
    begins(texts, "NVTE_DPA_FP8_RECIPE", "2.8")
    begins(texts, "NVTE_DPA_FP8CS_O_in_F16", "2.8")
    assert all("NVTE_FP8_DPA_BWD" in text for version, text in texts.items() if version >= Version("2.5"))


@pytest.mark.upstream
def test_flash_attention_4_takes_context_parallelism_from_2_19_on(upstream: Path) -> None:
    path = "transformer_engine/pytorch/attention/dot_product_attention/utils.py"
    texts = by_release(upstream, "transformer-engine", path)
    begins(texts, 'fa4_cp_supported = cp_comm_type in ["p2p", "all_gather", "a2a"]', "2.19")
    off = [v for v, text in texts.items() if "FlashAttention 4 as it does not support context parallelism yet" in text]
    assert min(off) == Version("2.15") and max(off) < Version("2.19")


@pytest.mark.upstream
def test_verl_aligns_packed_fp8_to_16_and_to_128_times_the_base(upstream: Path) -> None:
    texts = by_release(upstream, "verl", "verl/models/mcore/util.py")
    assert all("math.lcm(16, align_size), align_size * 128" in text for text in texts.values())


@pytest.mark.upstream
def test_verl_0_9_refuses_means_of_sequences_and_unpacked_data_with_per_token_loss(upstream: Path) -> None:
    texts = by_release(upstream, "verl", ENGINE)
    begins(texts, "calculate_per_token_loss=True requires use_remove_padding=True", "0.9")
    means = [
        version for version, text in texts.items() if "loss_agg_mode='seq-mean-token-mean' is incompatible" in text
    ]
    assert means == [Version("0.9.0")]


@pytest.mark.upstream
def test_bridge_0_6_stops_fine_tuning_without_a_checkpoint(upstream: Path) -> None:
    texts = by_release(upstream, "megatron-bridge", "megatron/bridge/training/setup.py")
    begins(texts, "Finetuning requires loading from an available pretrained checkpoint", "0.6")
