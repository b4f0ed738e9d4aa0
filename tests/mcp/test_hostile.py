"""`hcp mcp` under hostile lines, cancelled calls, a closed input and signals: it answers, and ends when asked."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

mcp = pytest.importorskip("mcp")
import mcp_types as types  # noqa: E402
from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402

from support.processes import HANG_S  # noqa: E402

import anyio  # noqa: E402  # isort: skip

pytestmark = pytest.mark.slow

BEGIN = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def request(number: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


PATIENT = """
from megatron_hcp.cli.main import main
from megatron_hcp.mcp import server
server.TIMEOUT_S = 10**6  # so that what ends a call is what the test does
main()
"""


class Server:
    """A server whose lines are written and read raw; its calls have no time limit of their own."""

    def __init__(self, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PATIENT, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd
        )

    def send(self, *lines: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


@contextmanager
def server(cwd: Path) -> Iterator[Server]:
    found = Server(cwd)
    try:
        found.send(BEGIN, READY)
        assert found.answer()["id"] == 0
        yield found
    finally:
        found.process.kill()
        found.process.wait(HANG_S)


def hostile() -> list[bytes]:
    """Lines that are no message, by construction and drawn."""
    whole = json.dumps(request(7, "tools/call", name="explain", arguments={"rule": "HCP001"}))
    made = [b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"{}" * 2, b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5_000]
    made += [b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}', b'{"jsonrpc":"2.0","id":1}']
    made += [b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', b'{"jsonrpc":"1.0","id":1,"method":"ping"}']
    made += [f"[{whole}, {whole}]".encode(), b'{"jsonrpc":"2.0","id":{},"method":"ping"}', b"\0" * 50, b"x" * 200_000]
    draw = random.Random(20261124)
    for _ in range(200 - len(made)):
        cut = bytearray(whole.encode())
        at = draw.randrange(len(cut))
        cut[at : at + draw.randrange(1, 9)] = draw.choice([b"\xc3", b'"', b"{", b"]", b"\\", b"1e999", b""])
        made.append(bytes(cut))
    return made


def is_message(line: bytes) -> bool:
    """Whether a line is a message after all: a call, whose answer comes later than a ping's, or a notification."""
    try:
        value = json.loads(line)
        return (value.get("method") == "tools/call" and value.get("id", "") is not None) or "id" not in value
    except (ValueError, AttributeError, RecursionError):
        return False


def test_every_hostile_line_is_answered_and_the_server_lives_on(tmp_path: Path) -> None:
    with server(tmp_path) as found:
        for number, line in enumerate(hostile()):
            found.send(line, request(f"after {number}", "ping"))
            answers = [found.answer()]
            while answers[-1].get("id") != f"after {number}":
                answers.append(found.answer())
            if not is_message(line):
                codes = [answer["error"]["code"] for answer in answers if "error" in answer]
                assert codes and set(codes) <= {-32700, -32600, -32601, -32602}, line[:80]
        found.send(request("last", "tools/call", name="explain", arguments={"rule": "HCP001"}))
        while (answer := found.answer()).get("id") != "last":
            pass
        assert answer["result"]["structuredContent"]["exit_code"] == 0


def test_a_line_longer_than_a_message_may_be_is_refused_and_not_kept(tmp_path: Path) -> None:
    with server(tmp_path) as found:
        found.send(b"x" * 17_000_000, request(1, "ping"))
        assert "more than 16 MB" in found.answer()["error"]["message"]
        assert found.answer()["id"] == 1


WRONG: list[dict[str, Any]] = [
    {"path": "x" * 300_000}, {"assume": ["te=" + "9" * 5_000], "text": "x"},
    {"text": "model.context_parallel_size=" + "9" * 5_000}, {"text": "x", "set": ["\u202e=1"]}, {"skip": 10**400},
    {"path": ["x"] * 1000}, {"path": "/proc/self/environ"}, {"path": "/dev/random"}, {"text": "{" * 100_000},
]  # fmt: skip
"""Arguments of `check` that it refuses."""


def requests() -> Iterator[tuple[str, dict[str, Any]]]:
    """200 requests that a client sends without an objection of its own: a method, and its parameters."""
    values: list[Any] = [None, -1, 10**400, 1.5, "", "\0", "\u202e", "x" * 100_000]
    values += [[], ["x"] * 1000, {}, {"a": {"b": []}}]
    for name in ("check", "triage", "support", "plan", "explain", "", "\u202e", "x" * 1000):
        for value in values:
            key = "rule" if name == "explain" else "model" if name in ("support", "plan") else "path"
            yield "tools/call", {"name": name, "arguments": {key: value}}
    for arguments in WRONG:
        yield "tools/call", {"name": "check", "arguments": arguments}
    uris = ["", "hcp://", "hcp://skills/", "hcp://rules/", "hcp://skills/x", "file:///etc/passwd"]
    uris += ["x" * 10_000, "\0", "%00"]
    places = ["//etc/passwd", "/../../x", "?part=0", "?part=" + "9" * 5_000, "/references", "/" + "x/" * 2_000]
    uris += [f"hcp://skills/context-parallel-planning{place}" for place in places]
    for uri in uris:
        yield "resources/read", {"uri": uri}
    for cursor in ("-1", "x", "9" * 5_000, "\u0663", ""):
        yield "resources/list", {"cursor": cursor}
    for number in range(200 - 96 - len(WRONG) - len(uris) - 5):
        yield random.Random(number).choice(["x", "tools/x", "resources/x", "\u202e", "prompts/list"]), {"x": number}


def test_two_hundred_hostile_requests_of_the_sdks_client_are_all_answered(tmp_path: Path) -> None:
    """By a result or an error, none with a traceback; and each refusal of a tool is an hcp.error."""
    asked = list(requests())
    assert len(asked) == 200
    answers: list[Any] = []

    async def send(session: Any, method: str, params: dict[str, Any]) -> Any:
        try:
            if method == "tools/call":
                return await session.call_tool(params["name"], params["arguments"])
            if method == "resources/read":
                return await session.read_resource(params["uri"])
            if method == "resources/list":
                return await session.list_resources(params=types.PaginatedRequestParams(**params))
            request = types.Request[Any, str](method=method, params=params)
            return await session.send_request(request, types.EmptyResult)
        except mcp.MCPError as error:
            return error.error

    async def main() -> None:
        given = StdioServerParameters(
            command=sys.executable, args=["-m", "megatron_hcp", "mcp"], cwd=tmp_path, env=dict(os.environ)
        )
        async with stdio_client(given) as (reads, writes), mcp.ClientSession(reads, writes) as session:
            await session.initialize()
            for method, params in asked:
                answers.append(await send(session, method, params))
            assert not (await session.call_tool("explain", {"rule": "HCP001"})).is_error

    anyio.run(main)
    assert len(answers) == 200
    for (_, params), answer in zip(asked, answers, strict=True):
        if isinstance(answer, types.CallToolResult):
            told = answer.structured_content or {}
            assert told["exit_code"] in (0, 1, 2, 4), str(params)[:200]
            assert not answer.is_error or told["answer"]["schema"] == "hcp.error/1", str(params)[:200]
        elif isinstance(answer, types.ErrorData):
            assert answer.code < 0 and "Traceback" not in answer.message, str(params)[:200]


def test_arguments_that_no_command_takes_are_refused_through_the_client_of_the_sdk(tmp_path: Path) -> None:
    async def main() -> None:
        given = StdioServerParameters(
            command=sys.executable, args=["-m", "megatron_hcp", "mcp"], cwd=tmp_path, env=dict(os.environ)
        )
        async with stdio_client(given) as (reads, writes), mcp.ClientSession(reads, writes) as session:
            await session.initialize()
            for arguments in WRONG:
                try:
                    result = await session.call_tool("check", arguments)
                except (UnicodeError, ValueError):
                    continue  # the client does not send it
                assert result.is_error and result.structured_content["exit_code"] == 2, arguments
                assert result.structured_content["answer"]["schema"] == "hcp.error/1"
            assert not (await session.call_tool("explain", {"rule": "HCP001"})).is_error

    anyio.run(main)


def children(of: int) -> set[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    return {pid for pid, parent in pairs if parent == of}


def endless(found: Server, folder: Path) -> set[int]:
    """Starts a call that waits for a pipe's writer; its process."""
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    found.writer = os.open(fifo, os.O_RDWR)  # type: ignore[attr-defined]
    found.send(request("endless", "tools/call", name="check", arguments={"path": str(fifo)}))
    ends = time.monotonic() + HANG_S
    while not (begun := children(found.process.pid)):
        assert time.monotonic() < ends
        time.sleep(0.05)
    return begun


def wait_until_gone(pids: set[int]) -> None:
    ends = time.monotonic() + HANG_S
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < ends, pids
        time.sleep(0.05)


def test_a_cancelled_call_ends_its_process(tmp_path: Path) -> None:
    with server(tmp_path) as found:
        begun = endless(found, tmp_path)
        found.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "endless"}})
        wait_until_gone(begun)
        found.send(request("after", "ping"))
        while found.answer().get("id") != "after":
            pass


def test_a_closed_input_ends_the_server_and_its_calls(tmp_path: Path) -> None:
    with server(tmp_path) as found:
        begun = endless(found, tmp_path)
        assert found.process.stdin is not None
        found.process.stdin.close()
        wait_until_gone(begun)
        assert found.process.wait(HANG_S) == 0


def test_a_client_that_is_gone_ends_the_server_without_a_word(tmp_path: Path) -> None:
    with server(tmp_path) as found:
        begun = endless(found, tmp_path)
        assert found.process.stdin is not None and found.process.stdout is not None
        found.process.stdout.close()
        found.send(request(1, "ping"))
        found.process.stdin.close()
        wait_until_gone(begun)
        assert found.process.wait(HANG_S) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_and_its_calls(tmp_path: Path, number: int) -> None:
    with server(tmp_path) as found:
        begun = endless(found, tmp_path)
        found.process.send_signal(number)
        wait_until_gone(begun)
        assert found.process.wait(HANG_S) == 128 + number


def test_no_more_than_four_calls_run_at_once(tmp_path: Path) -> None:
    with server(tmp_path) as found:
        endless(found, tmp_path)
        for number in range(7):
            found.send(request(number + 10, "tools/call", name="check", arguments={"path": str(tmp_path / "fifo")}))
        ends = time.monotonic() + HANG_S
        while len(children(found.process.pid)) < 4:
            assert time.monotonic() < ends
            time.sleep(0.05)
        time.sleep(0.5)
        assert len(children(found.process.pid)) == 4
