"""Standard streams that cannot break a command: closed ones are replaced, and unwritable output is dropped."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import IO, Any


def guard_streams() -> None:
    """Makes this process exit with the code of its command, whatever happens to its standard streams.

    A closed stream is replaced by /dev/null, so that no file opened later gets its descriptor; `sys.stdin` stays None,
    so that its readers can report it. A stream that fails (a full disk) is reported once on standard error; one whose
    reader is gone (`hcp ... | head`) is dropped silently. Characters that the encoding lacks are escaped.
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


class _Surviving(io.FileIO):
    """Writes as long as that works; after a failure, discards all further output."""

    _lost = False

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self._lost:
            return size
        try:
            return super().write(data) or self._wait()
        except OSError as error:
            self._lost = True
            if error.errno != errno.EPIPE and self.fileno() == 1:
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
