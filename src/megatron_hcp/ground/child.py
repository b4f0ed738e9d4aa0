"""Runs a program whose output is wanted: bounded in time and in bytes, and ended with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Literal, NamedTuple

MAX_OUTPUT = 20_000_000
"""Bytes that a program may print to either stream."""
_FIRST_TICK_S, _LONGEST_TICK_S = 0.002, 0.1


class Child(NamedTuple):
    """How a program ended. `status` is None where it was ended; `why` says for what."""

    status: int | None
    stdout: str
    stderr: str
    why: Literal["", "time", "output", "stopped"] = ""


def run_child(
    words: Sequence[str],
    *,
    input: str = "",
    timeout_s: float,
    folder: str | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
    grace_s: float = 0.0,
) -> Child:
    """Runs a program in a session of its own; what it still runs at its end, or at a limit's, is killed.

    Args:
        words: the program and its arguments.
        input: what it reads on standard input.
        timeout_s: seconds that it may take.
        folder: its working folder.
        is_stopped: asked ten times a second; once it says so, or raises, the program is ended.
        grace_s: seconds that a program which is ended has first, to end what it started in other sessions.

    Raises:
        OSError: the program cannot be started, or there is no room for temporary files.
        ValueError: a word holds a null byte.
    """
    # Files, not pipes: a child of the program would keep a pipe open, and reading would wait for its end.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(input.encode("utf-8", "surrogatepass"))
        given.seek(0)
        process = subprocess.Popen(list(words), stdin=given, stdout=out, stderr=err, cwd=folder, start_new_session=True)
        status: int | None = None
        why: Literal["", "time", "output", "stopped"] = ""
        ends, tick = time.monotonic() + timeout_s, _FIRST_TICK_S
        try:
            while status is None and not why:
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(tick)
                tick = min(2 * tick, _LONGEST_TICK_S)
                if any(os.fstat(file.fileno()).st_size > MAX_OUTPUT for file in (out, err)):
                    status, why = None, "output"
                elif status is None:
                    why = "stopped" if is_stopped() else "time" if time.monotonic() > ends else ""
        finally:
            if status is None and grace_s:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(grace_s)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)  # a hanging driver can block even a killed program
        return Child(status, _text(out), _text(err), why)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MAX_OUTPUT).decode("utf-8", "replace")
