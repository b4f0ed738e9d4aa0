"""Reads files that a user names, with bounded waiting and bounded memory."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

from megatron_hcp.ground.asked import note_content

FIRST_WRITER_S = 5.0
"""How long a named pipe may be without a writer. A pipe with a writer is waited for, as in any program; if standard
input brings nothing for as long, that is said."""


class TooLargeError(Exception):
    """More bytes than the limit: at least `found`."""

    def __init__(self, found: int) -> None:
        super().__init__(found)
        self.found = found


def open_input(path: str) -> BinaryIO:
    """The file, open for reading; a pipe (`<(…)`, `/dev/stdin`, a FIFO) and a device as well.

    Raises:
        OSError: it is missing, a folder or not readable, a pipe without a writer, or a device with nothing to read.
    """
    status = os.stat(path)
    if stat.S_ISFIFO(status.st_mode):
        return _open_pipe(path)
    if stat.S_ISCHR(status.st_mode) and not _is_standard_input(status):
        return _open_device(path)
    if stat.S_ISREG(status.st_mode):
        # Some files of /proc look regular, and a read of them waits: now it brings nothing instead.
        return open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    return open(path, "rb")


def read_whole(path: str, most: int) -> bytes:
    """The bytes of a file that has at most `most` of them.

    Raises:
        OSError: as `open_input`.
        TooLargeError: there are more.
    """
    data, is_regular = None, False
    try:
        with open_input(path) as file:
            status = os.fstat(file.fileno())
            is_regular = stat.S_ISREG(status.st_mode)
            if is_regular and status.st_size > most:
                raise TooLargeError(status.st_size)
            data = read_at_most(file, most)
            return data
    finally:
        note_content(path, data if is_regular else None)


def read_at_most(stream: BinaryIO, most: int) -> bytes:
    """The bytes up to the end of a stream.

    Raises:
        OSError: it would have to be waited for.
        TooLargeError: there are more than `most`.
    """
    data: bytes | None = stream.read(most + 1)
    if data is None:
        raise OSError(errno.EAGAIN, "it has nothing to read")
    if len(data) > most:
        raise TooLargeError(len(data))
    return data


def _open_pipe(path: str) -> BinaryIO:
    from select import POLLIN, poll

    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        waiting = poll()
        waiting.register(handle, POLLIN)
        if not waiting.poll(FIRST_WRITER_S * 1000) and _has_no_writer(handle):
            raise OSError(errno.ETIMEDOUT, "it is a pipe without a writer", path)
        os.set_blocking(handle, True)
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _is_standard_input(status: os.stat_result) -> bool:
    """Whether it is what the process was given to read; if that is a terminal, its user types."""
    try:
        return os.path.samestat(status, os.fstat(0))
    except OSError:
        return False


def _open_device(path: str) -> BinaryIO:
    """A terminal, a random generator, …: what it has now is read, and nothing is waited for."""
    from select import POLLIN, poll

    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        waiting = poll()
        waiting.register(handle, POLLIN)
        if not waiting.poll(0):
            raise OSError(errno.EAGAIN, "it is a device with nothing to read", path)
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _has_no_writer(handle: int) -> bool:
    """Polls an empty pipe: without a writer it is at its end, with one it has nothing yet."""
    try:
        return os.read(handle, 1) == b""
    except BlockingIOError:
        return False
