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
