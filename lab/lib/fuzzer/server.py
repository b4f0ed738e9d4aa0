"""What `hcp mcp` makes of its lines: its own intake, tools and resources, in this process."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

from megatron_hcp.ground.errors import HcpError, error_json


def main(words: list[str]) -> None:
    """Answers each line of standard input; prints one JSON object with all answers."""
    lines = sys.stdin.buffer.read().split(b"\n")
    print(json.dumps({"schema": "hcp.mcp-answers/0", "answers": [_answer(line) for line in lines if line.strip()]}))
    sys.exit(0)


def _answer(line: bytes) -> Any:
    from megatron_hcp.mcp.intake import fault_of, refusal

    fault = fault_of(line)
    if fault:
        return json.loads(refusal(line, fault))
    message = json.loads(line)
    params = message.get("params") or {}
    try:
        if message.get("method") == "resources/read":
            return _resource(params.get("uri"))
        return _called(params.get("name"), params.get("arguments"))
    except HcpError as error:
        return error_json(error)


def _resource(uri: object) -> Any:
    from megatron_hcp.mcp.server import part_of_skill

    return {"text": part_of_skill(uri)} if isinstance(uri, str) else None


def _called(name: object, given: object) -> Any:
    from megatron_hcp.cli.main import main as hcp
    from megatron_hcp.mcp.fit import fitted
    from megatron_hcp.mcp.tools import TOOLS

    tool = next((tool for tool in TOOLS if tool.name == name), None)
    if tool is None or not isinstance(given, dict):
        return None  # the SDK, or the server, refuses it
    tool.refuse_wrong(given)
    words = [*tool.words(given), "--format", "json"]
    streams = sys.stdin, sys.stdout
    sys.stdin = io.TextIOWrapper(io.BytesIO(str(given.get("text") or "").encode("utf-8", "surrogatepass")))
    sys.stdout = out = io.StringIO()
    try:
        hcp(words)
    except SystemExit:
        pass
    finally:
        sys.stdin, sys.stdout = streams
    return fitted(json.loads(out.getvalue()), given.get("skip") or 0, main=tool.main, spare=tool.spare)[0]
