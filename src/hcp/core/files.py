"""The one writer of files: whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Writes the file so that a reader finds the old content or the new one, never a part.

    The data goes into a temporary file beside the target, which then takes its name; the target's permissions are
    kept. A target that is no regular file (a terminal, a pipe, `/dev/stdout`) is written directly.

    Raises:
        OSError: the folder is missing, is not writable, or the disk is full; the target is as it was.
    """
    raw = data.encode("utf-8") if isinstance(data, str) else data
    try:
        status = os.stat(path)
    except FileNotFoundError:
        mode = 0o666 & ~_umask()
    else:
        if not stat.S_ISREG(status.st_mode):
            with open(path, "wb") as file:
                file.write(raw)
            return
        mode = stat.S_IMODE(status.st_mode)
    target = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
