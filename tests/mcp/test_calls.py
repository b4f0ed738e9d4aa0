"""A call of `hcp mcp` has a time limit of its own."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

pytest.importorskip("anyio")
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.mcp import server
from megatron_hcp.mcp.tools import TOOLS

SECURITY = Path(__file__).resolve().parents[2] / "SECURITY.md"


def test_a_call_that_takes_too_long_is_ended_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    writer = os.open(tmp_path / "fifo", os.O_RDWR)
    assert f"each for at most {server.TIMEOUT_S} s" in SECURITY.read_text()
    monkeypatch.setattr(server, "TIMEOUT_S", 0.5)
    (check,) = (tool for tool in TOOLS if tool.name == "check")
    asked = itertools.count()  # ten times a second: without a limit, the call is ended here
    with pytest.raises(HcpError, match=r"check: no answer after 0\.5 s"):
        server.ask(check, {"path": str(tmp_path / "fifo")}, is_stopped=lambda: next(asked) > 100)
    os.close(writer)
