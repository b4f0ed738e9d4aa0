"""Atomic file writing, and a reader that never blocks and never reads more than its limit."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from megatron_hcp.ground.asked import note_content
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible

if TYPE_CHECKING:
    from pathlib import Path

_STREAM = r"/dev/(?:stdout|stderr|fd/\d+)|/proc/\w+/fd/\d+"
MAX_BYTES = 5_000_000
"""For one file that a person writes: cards, site files, records."""


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Writes the file atomically: a reader finds the old content or the new one, never a part.

    The data goes into a temporary file next to the target, which is then renamed; the target's permissions are kept. A
    target that isn't a regular file (a terminal, a pipe, `/dev/stdout`) is written directly.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full; the target is unchanged.
    """
    import tempfile  # imported late: with pathlib, it takes a tenth of a check's time, and a check only reads

    raw = data.encode("utf-8") if isinstance(data, str) else data
    if re.fullmatch(_STREAM, os.path.abspath(path)):
        # The target of a redirected stream isn't replaced: it may be a log that others write to as well.
        with _open_stream(path) as file:
            file.write(raw)
        return
    try:
        status = os.stat(path)
    except FileNotFoundError:
        mode = 0o666 & ~_umask()
    else:
        if not stat.S_ISREG(status.st_mode):
            with _open_stream(path) as file:
                file.write(raw)
            return
        mode = stat.S_IMODE(status.st_mode)
    target = os.path.realpath(path)
    folder, own_name = os.path.split(target)
    handle, name = tempfile.mkstemp(prefix=f".{own_name[:100]}.", dir=folder)
    try:
        with open(handle, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _open_stream(path: str | Path) -> IO[bytes]:
    """A pipe without a reader is an error (ENXIO) instead of blocking."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(handle, True)
    return open(handle, "wb")


def read_regular(path: str | Path, wanted: str, *, limit: int = MAX_BYTES, pipes: bool = False) -> bytes:
    """The bytes of a regular file; `wanted` says in messages what the file should be.

    With `pipes`, a pipe with a writer is read as well (a shell's `<(…)`); one without a writer counts as empty instead
    of blocking. A name from outside that is joined to a folder passes `file_below` first.

    Raises:
        HcpError: it is missing, a folder, a pipe, a device, cannot be read, or is larger than `limit`.
    """
    try:
        data = _regular_bytes(path, wanted, limit, pipes)
    except HcpError:
        note_content(str(path), None)
        raise
    note_content(str(path), data if not pipes or os.path.isfile(path) else None)
    return data


def _regular_bytes(path: str | Path, wanted: str, limit: int, pipes: bool) -> bytes:
    name = visible(str(path))
    try:
        # Checked before opening: opening a device may already have an effect.
        if _is_read(os.stat(path).st_mode, pipes):
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
                if _is_read(os.fstat(file.fileno()).st_mode, pipes):
                    return _bytes_of(file, name, wanted, limit)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise HcpError(f"{name}: cannot be read ({reason})", wanted=wanted, do="check the path") from None
    raise HcpError(f"{name} is not a regular file", wanted=wanted, do="give a file, not a folder, a pipe or a device")


def read_text(path: str | Path, wanted: str, *, limit: int = MAX_BYTES, pipes: bool = False) -> str:
    """The text of a regular file in UTF-8, read as `read_regular` does; a byte-order mark is dropped.

    Raises:
        HcpError: as `read_regular`, or it is not UTF-8.
    """
    data = read_regular(path, wanted, limit=limit, pipes=pipes)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HcpError(
            f"{visible(str(path))} is not UTF-8 (byte 0x{data[error.start]:02x} at offset {error.start})",
            wanted=wanted,
            do="convert it with iconv",
        ) from None


def _is_read(mode: int, pipes: bool) -> bool:
    return stat.S_ISREG(mode) or (pipes and stat.S_ISFIFO(mode))


def _bytes_of(file: IO[bytes], name: str, wanted: str, limit: int) -> bytes:
    data = file.read(limit + 1)
    if data != b"" and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
        os.set_blocking(file.fileno(), True)  # it has a writer, who may write later
        data = data or file.read(limit + 1)
    whole = bytearray(data or b"")
    while data and len(whole) <= limit:
        data = file.read(limit + 1 - len(whole))  # None: a file in /proc that has nothing more yet
        whole += data or b""
    if len(whole) > limit:
        raise HcpError(
            f"{name} has more than {limit:,} bytes", wanted=wanted, do="name the file itself, not a log or data"
        )
    return bytes(whole)


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """A lock per folder between processes: a second one waits. Leaves no file behind.

    On a file system without locks (some network ones) it has no effect; two writers then don't wait for each other.
    """
    import fcntl

    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
