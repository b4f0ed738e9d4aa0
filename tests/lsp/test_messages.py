"""Messages that no editor sends: the server asks for no more memory than one may have."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pygls")


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (b"Content-Length: 99999999999\r\n\r\n{}", 2, b"hcp: found a message of 99,999,999,999 bytes"),
        (b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{}", 0, b""),
        (b"x" * 3_000_000, 0, b""),
    ],
)
def test_a_message_of_any_length_is_refused_or_passed_over(sent: bytes, code: int, said: bytes) -> None:
    """No more is asked for than a limit, whatever a header says."""
    done = subprocess.run([sys.executable, "-m", "megatron_hcp", "lsp"], input=sent, capture_output=True)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(said) and done.stderr.count(b"\n") == bool(said)


@pytest.mark.parametrize(
    "bad",
    [
        b"{",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":2,"method":"x\\n\\u001b[2J HF_TOKEN=hunter2"}',
        b'{"jsonrpc":"2.0","id":2,"method":"textDocument/hover","params":5}',
        b'{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":"HF_TOKEN=hunter2"}}',
        b'{"jsonrpc":"2.0","id":2,"method":"workspace/executeCommand","params":{"command":"x"}}',
    ],
)
def test_a_message_that_cannot_be_used_is_said_in_lines_and_the_server_lives_on(bad: bytes) -> None:
    """Without a traceback, a control character or a credential."""
    begin = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}'
    end = b'{"jsonrpc":"2.0","id":77,"method":"shutdown"}'
    sent = b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(line), line) for line in (begin, bad, end))
    done = subprocess.run([sys.executable, "-m", "megatron_hcp", "lsp"], input=sent, capture_output=True)
    assert b'"id":77' in done.stdout.replace(b" ", b"")
    lines = done.stderr.decode().splitlines()
    assert 1 <= len(lines) <= 2 and all(line.startswith("hcp: ") and line.isprintable() for line in lines), lines
    assert not any(word in done.stderr for word in (b"hunter2", b"Traceback"))
