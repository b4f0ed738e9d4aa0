"""A program that another one runs: bounded, and ended with what it started."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from megatron_hcp.ground import child
from megatron_hcp.ground.child import run_child
from support.processes import HANG_S

FOREVER = "import time\nwhile True: time.sleep(0.1)"


def python(code: str, **given: object) -> child.Child:
    return run_child([sys.executable, "-c", code], **{"timeout_s": HANG_S, **given})  # type: ignore[arg-type]


def test_what_it_reads_and_prints_and_how_it_ends(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.stdin.read(), os.getcwd()); print('b', file=sys.stderr); sys.exit(3)"
    assert python(code, input="é", folder=str(tmp_path)) == (3, f"é {tmp_path}\n", "b\n", "")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_one_that_prints_without_end_is_ended(monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    monkeypatch.setattr(child, "MAX_OUTPUT", 100_000)
    ended = python(f"import sys\nfor _ in range(100_000): print('x' * 10_000, file=sys.{stream})")
    assert (ended.status, ended.why, len(getattr(ended, stream))) == (None, "output", 100_000)


def test_one_that_takes_too_long_or_is_stopped_is_ended() -> None:
    assert python(FOREVER, timeout_s=0.1).why == "time"
    asked = iter([False, False, True])
    assert python(FOREVER, is_stopped=lambda: next(asked)).why == "stopped"


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    """A program that another one left behind would go on writing."""
    beat = tmp_path / "beat"
    code = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {_beating(beat)!r}])\n" + (
        f"import pathlib\nwhile not pathlib.Path({str(beat)!r}).exists(): time.sleep(0.05)"
    )
    assert python(code).status == 0
    last = beat.read_text()
    time.sleep(0.5)
    assert beat.read_text() == last


def _beating(beat: Path) -> str:
    return (
        f"import pathlib, time\nwhile True: pathlib.Path({str(beat)!r}).write_text(str(time.time())); time.sleep(0.05)"
    )


def test_one_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError):
        run_child(["/nothing/here"], timeout_s=1)
