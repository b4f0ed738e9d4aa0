"""Files are written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from hcp.core.files import write_whole


def test_the_new_content_takes_the_place_of_the_old(tmp_path: Path) -> None:
    target = tmp_path / "job.sbatch"
    target.write_text("old")
    target.chmod(0o750)
    write_whole(target, "new")
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert list(tmp_path.iterdir()) == [target]


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "verified.json"
    target.write_text("old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_keeps_pointing_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "real").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


def test_a_pipe_is_written_directly() -> None:
    read, write = os.pipe()
    write_whole(f"/dev/fd/{write}", "through")
    os.close(write)
    with open(read, "rb") as pipe:
        assert pipe.read() == b"through"
