"""Standard streams that cannot break a command: closed ones are replaced, and unwritable output is dropped."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import IO, Any

from megatron_hcp.ground.intake import FIRST_WRITER_S


def guard_streams(words: Sequence[str]) -> None:
    """Makes this process exit with the code of its command, whatever happens to its standard streams.

    A closed stream is replaced by /dev/null, so that no file opened later gets its descriptor; `sys.stdin` stays None,
    so that its readers can report it. A stream that fails (a full disk) is reported once on standard error, and
    `is_output_lost` then says so; one whose reader is gone (`hcp ... | head`) is dropped silently. Characters that the
    encoding lacks are escaped. If the words of the command name standard input (`-`), it is said that it is waited for.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
    sys.stdout = _guarded(sys.stdout, 1)
    sys.stderr = _guarded(sys.stderr, 2)
    if "-" in words and _is_standard(sys.stdin, 0):
        raw: Any = _Awaited(0, "rb", closefd=False)
        sys.stdin = io.TextIOWrapper(io.BufferedReader(raw), sys.stdin.encoding)


def _guarded(stream: Any, number: int) -> Any:
    if stream is not None and not _is_standard(stream, number):
        return stream  # a program that calls `main` has replaced the stream
    encoding = stream.encoding if stream is not None else "utf-8"
    raw: Any = _Surviving(number, "wb", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=True)


def _is_standard(stream: Any, number: int) -> bool:
    try:
        return type(stream) is io.TextIOWrapper and stream.fileno() == number
    except OSError:
        return False


class _Awaited(io.FileIO):
    """Says once that it is waited for: at a terminal, or where nothing comes. Its end is final, also at a terminal."""

    _said = _ended = False

    def readinto(self, buffer: Any) -> int | None:
        if not self._said:
            self._said = True
            if self.isatty():
                _complain(sys.stderr, "hcp: reads standard input, up to a Ctrl-D in a line of its own\n")
            elif not self._has_something():
                _complain(sys.stderr, "hcp: waits for standard input: what writes to it has written nothing yet\n")
        count = 0 if self._ended else super().readinto(buffer)
        self._ended = count == 0
        return count

    def _has_something(self) -> bool:
        from select import POLLIN, poll

        waiting = poll()
        waiting.register(self.fileno(), POLLIN)
        return bool(waiting.poll(FIRST_WRITER_S * 1000))


def is_output_lost() -> bool:
    """Whether standard output could not be written, for another reason than a reader that is gone."""
    if not sys.stdout.closed:  # a server closes it at its exit
        sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(raw, _Surviving) and raw.failed


class _Surviving(io.FileIO):
    """Writes as long as that works; after a failure, discards all further output."""

    _lost = failed = False

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self._lost:
            return size
        try:
            return super().write(data) or self._wait()
        except OSError as error:
            self._lost = True
            self.failed = error.errno != errno.EPIPE
            if self.failed and self.fileno() == 1:
                _complain(
                    sys.stderr, f"hcp: standard output cannot be written ({error.strerror}): the output is incomplete\n"
                )
            return size

    def _wait(self) -> int:
        """Waits until the stream accepts more: nothing was written because a non-blocking pipe is full."""
        import select

        select.select((), (self.fileno(),), ())
        return 0


def _complain(stream: IO[str], text: str) -> None:
    stream.write(text)
    stream.flush()
