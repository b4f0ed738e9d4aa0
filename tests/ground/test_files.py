"""Files are written whole or not at all."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text, write_whole


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


def test_a_file_is_read_whole_and_a_byte_order_mark_dropped(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbfa\xc3\xa4\r\n")
    assert read_text(tmp_path / "x", "a card", limit=8) == "aä\r\n"


def test_what_is_no_regular_file_of_a_fit_size_is_refused_at_once(tmp_path: Path) -> None:
    """No path here may be waited for: a pipe without a writer, a device without an end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "long").write_bytes(b"x" * 11)
    (tmp_path / "latin").write_bytes(b"\xe4")
    for name, said in (
        ("pipe", "is not a regular file"),
        ("zero", "is not a regular file"),
        (".", "is not a regular file"),
        ("loop", "cannot be read"),
        ("none", "cannot be read (No such file or directory)"),
        ("long", "has more than 10 bytes"),
        ("latin", "is not UTF-8 (byte 0xe4 at offset 0)"),
        ("a\0b", "cannot be read"),
        ("x" * 5000, "cannot be read"),
    ):
        with pytest.raises(HcpError) as caught:
            read_text(tmp_path / name, "a card", limit=10)
        assert said in str(caught.value) and "wanted a card" in str(caught.value)


@pytest.mark.slow
def test_a_pipe_is_read_to_its_end_where_it_is_allowed_and_one_without_a_writer_is_empty(tmp_path: Path) -> None:
    for script in ("sleep 0.2; printf a; sleep 0.2; printf b", "printf a; touch started; sleep 0.2; printf b"):
        with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, cwd=tmp_path) as writer:
            while "started" in script and not (tmp_path / "started").exists():
                pass
            assert writer.stdout is not None
            assert read_text(f"/dev/fd/{writer.stdout.fileno()}", "a card", pipes=True) == "ab"
    os.mkfifo(tmp_path / "pipe")
    assert read_text(tmp_path / "pipe", "a card", pipes=True) == ""


def test_what_a_stream_is_redirected_to_is_appended_to_and_not_replaced(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("precious\n")
    with open(log, "ab") as file:
        write_whole(f"/proc/self/fd/{file.fileno()}", "more\n")
    assert log.read_text() == "precious\nmore\n"


def test_a_pipe_that_nobody_reads_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):
        write_whole(tmp_path / "pipe", "text")
