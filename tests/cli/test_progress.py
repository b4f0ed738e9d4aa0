"""The line of progress: rewritten in place, not too often, and only on a terminal."""

from __future__ import annotations

import io
import sys
import time

import pytest

from megatron_hcp.cli.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch, kind: str = "xterm") -> Terminal:
    """What stands for standard error from here on; pytest's own capture replaces what a fixture puts there."""
    stderr = Terminal()
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys, "stderr", stderr)
    return stderr


def test_a_text_replaces_the_one_before_and_none_is_written_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    line = ProgressLine()
    for text in ("1/2", "1/2", "2/2"):
        line.show(text)
    line.clear()
    line.clear()
    assert stderr.getvalue() == "\r\x1b[K1/2\r\r\x1b[K2/2\r\r\x1b[K\r"


def test_the_first_text_waits_and_each_stays_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    line = ProgressLine(first_s=2, pause_s=0.5)
    for now in (101.5, 102.0, 102.25, 102.5):
        line.show(f"at {now}")
    line.clear()
    assert stderr.getvalue() == "\r\x1b[Kat 102.0\r\r\x1b[Kat 102.5\r\r\x1b[K\r"


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nothing_is_written_elsewhere(stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    line = ProgressLine()
    line.show("1/2")
    line.clear()
    assert stream is None or stream.getvalue() == ""


def test_a_terminal_without_a_cursor_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch, "dumb")
    ProgressLine().show("1/2")
    assert stderr.getvalue() == ""
