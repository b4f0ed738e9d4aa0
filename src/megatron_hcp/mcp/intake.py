"""The server's own standard streams: each line is bounded and checked before the protocol sees it, and is answered.

The SDK drops a line that is no message without an answer; a client that waits for one would wait for ever.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import anyio
import mcp_types as types

from megatron_hcp.ground.errors import HcpError

MAX_LINE = 16_000_000
"""Bytes of a message: a log that an agent passes as text is the largest."""
_BLOCK = 65_536
_AT_ONCE = 4_096
"""What a pipe takes without blocking once it is writable (PIPE_BUF on Linux)."""


class Wire:
    """Standard input and output, as the SDK's transport wants them; the process's own are then no longer theirs.

    Read and written without threads: one that waits for a line would keep the process from ending.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        """`ended` is called once the client has closed standard input."""
        self._ended = ended
        self._in, self._out = os.dup(0), os.dup(1)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)  # a stray print is none of the protocol
        self._lock = anyio.Lock()

    async def __aiter__(self) -> AsyncIterator[str]:
        """The messages; lines that are none are answered here."""
        async for line in self._lines():
            if not line.strip():
                continue
            fault = "a message of more than 16 MB" if len(line) > MAX_LINE else fault_of(line)
            if fault:
                await self.write(refusal(line[:MAX_LINE], fault) + "\n")
            else:
                yield line.decode("utf-8")
        self._ended()

    async def _lines(self) -> AsyncIterator[bytes]:
        """The lines; of one that is too long, what is beyond the limit is dropped as it comes."""
        rest = bytearray()
        while True:
            with suppress(PermissionError):  # a file is always readable, and cannot be waited for
                await anyio.wait_readable(self._in)
            block = os.read(self._in, _BLOCK)
            *ended, begun = block.split(b"\n")
            for part in ended:
                yield bytes(rest + part)
                rest.clear()
            rest += begun
            del rest[MAX_LINE + 1 :]
            if not block:
                if rest:
                    yield bytes(rest)
                return

    async def write(self, text: str) -> None:
        """Writes a message whole, without blocking others than writers.

        Raises:
            HcpError: it cannot be written, for another reason than a client that is gone.
        """
        data = text.encode("utf-8", "replace")
        async with self._lock:
            while data:
                with suppress(PermissionError):
                    await anyio.wait_writable(self._out)
                try:
                    data = data[os.write(self._out, data[:_AT_ONCE]) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    return  # the client is gone, and its end of the input with it
                except OSError as error:
                    raise HcpError(
                        f"standard output cannot be written ({error.strerror})", wanted="a client that reads answers"
                    ) from None

    async def flush(self) -> None:
        """Nothing is held back."""


def fault_of(line: bytes) -> str:
    """What is wrong with a line; empty if it is a message."""
    try:
        types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        value = json.loads(line.decode("utf-8"))  # after that check it is not deep
    except ValueError as error:
        errors = getattr(error, "errors", None)
        return f"no message of JSON-RPC: {errors()[0]['msg'] if errors else error}"[:200]
    # The SDK takes a request whose id is none for a notification, which gets no answer.
    is_wrong = "id" in value and (not isinstance(value["id"], (int, str)) or isinstance(value["id"], bool))
    return "no message of JSON-RPC: its id is neither a number nor a text" if is_wrong else ""


def refusal(line: bytes, fault: str) -> str:
    """The answer to a line that is no message: a parse error, or an invalid request with its id."""
    number, code = None, types.PARSE_ERROR
    with suppress(ValueError, RecursionError):
        value: Any = json.loads(line)
        code = types.INVALID_REQUEST
        if isinstance(value, dict) and isinstance(value.get("id"), (int, str)):
            number = value["id"]
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": fault}})
