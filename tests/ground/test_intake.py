"""Files that users name: pipes and devices are read, none is waited for without end or held beyond the limit."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from megatron_hcp.ground import intake
from megatron_hcp.ground.intake import TooLargeError, open_input, read_at_most, read_whole
from megatron_hcp.launch.source import byte_order_mark
from support.processes import HANG_S


def test_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"12345")
    assert read_whole(str(file), 5) == b"12345"
    with pytest.raises(TooLargeError) as caught:
        read_whole(str(file), 4)
    assert caught.value.found == 5


def test_a_device_without_end_is_read_no_further_than_the_limit() -> None:
    with pytest.raises(TooLargeError) as caught:
        read_whole("/dev/zero", 1000)
    assert caught.value.found == 1001


def test_a_device_that_would_make_the_reader_wait_is_refused() -> None:
    ours, terminal = os.openpty()
    with pytest.raises(OSError, match="a device with nothing to read"):
        open_input(os.ttyname(terminal))
    os.close(terminal)
    os.close(ours)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x" * 200_000,))
    writer.start()
    assert read_whole(str(pipe), 10**6) == b"x" * 200_000
    writer.join()


def test_a_pipe_to_which_nobody_writes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "FIRST_WRITER_S", 0.01)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    late = threading.Timer(HANG_S, lambda: os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)))
    late.start()
    with pytest.raises(OSError, match="without a writer"):
        open_input(str(pipe))
    late.cancel()


def test_a_pipe_with_a_silent_writer_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "FIRST_WRITER_S", 0.01)
    reading, writing = os.pipe()
    with open_input(f"/dev/fd/{reading}") as file:
        os.write(writing, b"late")
        os.close(writing)
        assert file.read() == b"late"
    os.close(reading)


@pytest.mark.parametrize("name", [".", "no/such/file"])
def test_what_is_no_file_is_an_os_error(name: str) -> None:
    with pytest.raises(OSError):
        read_whole(name, 10)


def test_a_pipe_is_not_opened_again_to_look_for_a_byte_order_mark(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    both = os.open(pipe, os.O_RDWR)  # so that opening it again would not wait
    os.write(both, b"\xef\xbb\xbf")
    assert byte_order_mark(str(pipe)) == ""
    os.close(both)


def test_what_would_have_to_be_waited_for_is_an_error() -> None:
    """As a file of /proc that looks regular: its reader would never come back."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with open(reading, "rb") as file, pytest.raises(OSError, match="nothing to read"):
        read_at_most(file, 10)
    os.close(writing)


def test_a_regular_file_is_opened_so_that_a_read_cannot_wait(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    with open_input(str(tmp_path / "x")) as file:
        assert not os.get_blocking(file.fileno()) and file.read() == b"abc"
