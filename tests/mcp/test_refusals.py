"""What `hcp mcp` says when it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp")
pytestmark = pytest.mark.slow

SECRET = "ghp_" + "aB3dE5" * 6
CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
WITH_A_SECRET = (
    ("tools/call", {"name": SECRET, "arguments": {}}),
    ("tools/call", {"name": "check", "arguments": {SECRET: "x"}}),
    ("tools/call", {"name": "explain", "arguments": {"rule": SECRET}}),
    ("tools/call", {"name": "explain", "arguments": {"rule": [SECRET]}}),
    ("tools/call", {"name": "render", "arguments": {"path": "a.sh", "site": [SECRET]}}),
    ("prompts/get", {"name": SECRET, "arguments": {}}),
    ("prompts/get", {"name": "check_launch", "arguments": {SECRET: "x"}}),
    ("resources/list", {"cursor": SECRET}),
    *(
        ("resources/read", {"uri": f"hcp://{kind}{SECRET}"})
        for kind in ("", "skills/", "rules/", "skills/training-resiliency/")
    ),
)


def test_no_refusal_says_a_secret_that_the_client_gave(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "megatron_hcp", "mcp"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdin is not None and process.stdout is not None
        for number, (method, params) in enumerate((("initialize", CLIENT), *WITH_A_SECRET)):
            line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            said = process.stdout.readline()
            assert json.loads(said)["id"] == number and SECRET[:16] not in said, said
            if not number:
                process.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        process.stdin.close()


def test_a_full_disk_ends_the_server_with_one_line(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "megatron_hcp", "mcp"],
            input=json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": CLIENT}).encode() + b"\n",
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        )
    said = ended.stderr.decode()
    assert ended.returncode == 2 and said.count("\n") == 1 and "No space left" in said, said
