"""Commands with one fault each, for the tests of lab/fuzz.py: what it must see."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def fine(words: list[str]) -> None:
    """Reads what it was given, and writes what it was asked to."""
    for word in words:
        if os.path.isfile(word):
            Path(word).read_bytes()
        if word.startswith("out"):
            Path(word).write_text("fine\n")
    print("fine")
    sys.exit(0)


def unusable(words: list[str]) -> None:
    print("hcp: found nothing; wanted something; write it", file=sys.stderr)
    sys.exit(2)


def raises(words: list[str]) -> None:
    raise ValueError("a fault")


def shows_a_traceback(words: list[str]) -> None:
    print(
        'Traceback (most recent call last):\n  File "src/megatron_hcp/x.py", line 1, in f\nKeyError: 1', file=sys.stderr
    )
    sys.exit(3)


def burns(words: list[str]) -> None:
    while True:
        pass


def holds(words: list[str]) -> None:
    held = bytearray(64_000_000)
    held[::4096] = b"x" * len(held[::4096])
    sys.exit(0)


def dies(words: list[str]) -> None:
    os.abort()


_CALLS = 0


def changes_its_mind(words: list[str]) -> None:
    global _CALLS
    _CALLS += 1
    print(f'{{"schema": "hcp.x/1", "call": "{os.getpid()} {_CALLS}"}}')
    sys.exit(0)


def starts_a_program(words: list[str]) -> None:
    subprocess.run(["true"])


def calls_a_shell(words: list[str]) -> None:
    os.system("true")


def connects(words: list[str]) -> None:
    socket.create_connection(("127.0.0.1", 9))


def reads_elsewhere(words: list[str]) -> None:
    Path("/etc/hostname").read_bytes()


def reads_what_nobody_named(words: list[str]) -> None:
    Path("hcp_decoy.sh").read_bytes()


def lists_elsewhere(words: list[str]) -> None:
    os.listdir("/etc")


def writes_elsewhere(words: list[str]) -> None:
    Path(os.environ["HCP_FUZZ_ELSEWHERE"]).write_text("x")


def removes_its_input(words: list[str]) -> None:
    os.remove("run.sh")


def imports_foreign_code(words: list[str]) -> None:
    importlib.import_module("hcp_decoy")


def exits_with(code: int) -> Callable[[list[str]], None]:
    return lambda words: sys.exit(code)


def prints(text: str, code: int = 0, err: str = "") -> Callable[[list[str]], None]:
    def command(words: list[str]) -> None:
        sys.stdout.write(text)
        sys.stderr.write(err)
        sys.exit(code)

    return command
