"""Claims of the skill on FP8, read off every Transformer Engine's own sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from megatron_hcp.judge.anchored import segment_of

FOLDER = "transformer_engine/pytorch/attention/dot_product_attention"


def texts(upstream: Path, name: str, qualname: str) -> dict[Version, str]:
    """The function or class in each release from 2.5 on."""
    found = {}
    for release in upstream.glob("transformer-engine-2.*"):
        version = Version(release.name.removeprefix("transformer-engine-"))
        if version >= Version("2.5"):
            found[version] = segment_of(release / FOLDER / name, qualname) or ""
    assert len(found) >= 6 and all(found.values())
    return found


@pytest.mark.upstream
def test_gathered_attention_has_fp8_from_2_15_on(upstream: Path) -> None:
    for version, text in texts(upstream, "context_parallel.py", "AttnFuncWithCPAndKVAllGather").items():
        assert ("fp8" in text) == (version >= Version("2.15")), version
    for name in ("AttnFuncWithCPAndKVP2P", "AttnFuncWithCPAndQKVOA2A"):
        assert all("fp8" in text for text in texts(upstream, "context_parallel.py", name).values())


@pytest.mark.upstream
def test_the_recipes_that_attention_refuses(upstream: Path) -> None:
    for version, text in texts(upstream, "utils.py", "get_attention_backend").items():
        new = version >= Version("2.15")
        assert ("fp8_recipe.float8_block_scaling() or fp8_recipe.nvfp4()" in text) == new, version
        assert ("Disabling FusedAttention for MXFP8 with qkv_format = thd" in text) == new, version
        assert ("FP8 current scaling on arch < sm100" in text) == (version >= Version("2.8")), version


@pytest.mark.upstream
def test_mla_is_refused_before_2_15(upstream: Path) -> None:
    for version, text in texts(upstream, "utils.py", "get_attention_backend").items():
        assert ("MLA attention" in text) == (version < Version("2.15")), version


@pytest.mark.upstream
def test_sinks_want_a2a(upstream: Path) -> None:
    for version, text in texts(upstream, "context_parallel.py", "attn_forward_func_with_cp").items():
        assert ('softmax_type == "vanilla" or cp_comm_type == "a2a"' in text) == (version >= Version("2.8")), version


@pytest.mark.upstream
def test_gathering_blocks_wants_a_multiple_of_128(upstream: Path) -> None:
    read = 0
    for release in upstream.glob("transformer-engine-2.*"):
        version, folder = (
            Version(release.name.removeprefix("transformer-engine-")),
            release / "transformer_engine/pytorch",
        )
        if version >= Version("2.8"):
            checks = (
                segment_of(folder / "tensor/float8_blockwise_tensor.py", "Float8BlockQuantizer.is_quantizable") or ""
            )
            assert "% self.block_len != 0" in checks and "return False" in checks, version
            linear = (folder / "module/linear.py").read_text(encoding="utf-8")
            assert ("assert_dim_for_all_gather(" in linear) == (version < Version("2.14")), version
            read += 1
    assert read >= 6
