"""What hcp keeps between calls: found again under the same digest, bounded, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from megatron_hcp.ground import cache


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "hcp"


def test_what_was_kept_is_found_under_its_digest_alone(home: Path) -> None:
    cache.keep(cache.digest_of(["a", "b"]), {"rows": [1, None]})
    assert cache.kept(cache.digest_of(["a", b"b"])) == {"rows": [1, None]}
    for other in (["ab"], ["a", "b", ""], ["b", "a"], []):
        assert cache.kept(cache.digest_of(other)) is None
    assert [file.suffix for file in home.iterdir()] == [".json"]


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\0"])
def test_an_entry_that_is_damaged_counts_as_absent(home: Path, text: str) -> None:
    cache.keep(digest := cache.digest_of(["a"]), {})
    (home / f"{digest}.json").write_text(text)
    assert cache.kept(digest) is None


def test_a_folder_that_cannot_be_written_is_no_fault(home: Path) -> None:
    home.write_text("a file, not a folder")
    cache.keep(digest := cache.digest_of(["a"]), {})
    assert cache.kept(digest) is None


def test_the_oldest_entries_make_room(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = [cache.digest_of([str(number)]) for number in range(4)]
    for age, digest in enumerate(digests[:3]):
        cache.keep(digest, "x" * 100)
        os.utime(home / f"{digest}.json", (age, age))
    monkeypatch.setattr(cache, "MAX_BYTES", 250)
    cache.keep(digests[3], "x" * 100)
    assert [cache.kept(digest) is not None for digest in digests] == [False, False, True, True]


def test_an_entry_beyond_its_bound_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRY", 10)
    cache.keep(digest := cache.digest_of(["a"]), "x" * 20)
    assert cache.kept(digest) is None


def test_a_relative_folder_for_caches_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the specification of these variables says."""
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == str(tmp_path / ".cache" / "hcp")
