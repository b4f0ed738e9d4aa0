"""Claims of the skill on sparse and linear attention, read off every release's own sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

CORE = "megatron-core-*/megatron/core/"


def by_release(upstream: Path, pattern: str) -> dict[Version, str]:
    """The text of each release's files of that pattern, together."""
    found: dict[Version, str] = {}
    for file in sorted(upstream.glob(CORE + pattern)):
        release = next(part for part in file.parts if part.startswith("megatron-core-"))
        version = Version(release.removeprefix("megatron-core-"))
        found[version] = found.get(version, "") + file.read_text(encoding="utf-8")
    assert found
    return found


@pytest.mark.upstream
def test_gated_delta_nets_take_packed_rows_from_0_18_on(upstream: Path) -> None:
    texts = by_release(upstream, "ssm/gated_delta_net.py") | by_release(upstream, "ssm/gated_delta_net/*.py")
    assert min(texts) < Version("0.18") <= max(texts)
    for version, text in texts.items():
        refused = "GDN does not support packed sequence for now." in text
        assert refused == (version < Version("0.18")), version
        assert ("_undo_attention_load_balancing" in text) == (version >= Version("0.18")), version


@pytest.mark.upstream
def test_dsa_gathers_keys_over_the_cp_group_from_0_19_on(upstream: Path) -> None:
    texts = by_release(upstream, "transformer/experimental_attention_variant/dsa.py")
    assert min(texts) < Version("0.19") <= max(texts)
    for version, text in texts.items():
        new = version >= Version("0.19")
        assert ("Non-packed DSA allgather CP expects uniform per-rank sequence lengths" in text) == new, version
        assert ("build_packed_allgather_cp_local_positions" in text) == new, version
