"""`--model OWNER/NAME`: the config.json of a model in Hugging Face's local cache."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.hf import read_model

CONFIG = {"model_type": "qwen3", "num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 36}
COMMIT = "b968826d9c46dd6066d109eabc6255188de91218"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache as the Hub's client lays it out: blobs, snapshots of links to them, refs."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    model = tmp_path / "hub" / "models--Qwen--Qwen3-8B"
    for folder in ("blobs", f"snapshots/{COMMIT}", "refs"):
        (model / folder).mkdir(parents=True)
    (model / "blobs" / "abc").write_text(json.dumps(CONFIG))
    (model / "snapshots" / COMMIT / "config.json").symlink_to("../../blobs/abc")
    (model / "refs" / "main").write_text(COMMIT)
    return model


def test_a_cached_model_is_read_by_name(cache: Path) -> None:
    facts = read_model("Qwen/Qwen3-8B")
    assert (facts["heads"].value, facts["num_layers"].value) == (32, 36)
    assert facts["heads"].origin == "model"


def test_a_path_that_exists_wins_over_a_name(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    (tmp_path / "Qwen" / "Qwen3-8B" / "config.json").write_text(json.dumps({**CONFIG, "num_attention_heads": 8}))
    assert read_model("Qwen/Qwen3-8B").get("heads") != read_model(str(cache / "snapshots" / COMMIT)).get("heads")


def test_the_cache_is_found_below_hf_home(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(cache.parents[1]))
    assert read_model("Qwen/Qwen3-8B")["heads"].value == 32


def test_a_model_that_is_not_cached_is_refused_with_where_it_was_looked_for(cache: Path) -> None:
    with pytest.raises(HcpError) as refused:
        read_model("me/mine-14B")
    assert str(cache.parent / "models--me--mine-14B") in str(refused.value)
    assert "hf download me/mine-14B config.json" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("commit", ["../../../etc", "", "..", "a\nb", "x" * 300])
def test_a_reference_that_is_no_commit_is_refused(cache: Path, commit: str) -> None:
    (cache / "refs" / "main").write_text(commit)
    with pytest.raises(HcpError):
        read_model("Qwen/Qwen3-8B")


def test_a_link_out_of_the_models_folder_is_refused(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps(CONFIG))
    link = cache / "snapshots" / COMMIT / "config.json"
    link.unlink()
    link.symlink_to(tmp_path / "other.json")
    with pytest.raises(HcpError, match="leads elsewhere"):
        read_model("Qwen/Qwen3-8B")


def test_a_snapshot_without_a_config_is_refused(cache: Path) -> None:
    os.unlink(cache / "snapshots" / COMMIT / "config.json")
    with pytest.raises(HcpError, match=r"has no config\.json in the local cache"):
        read_model("Qwen/Qwen3-8B")
