"""Writes pictures and plans where the user wants them, and over nothing that is not one of ours."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from hcp.cli.screen import say
from hcp.core.errors import HcpError
from hcp.core.files import write_whole
from hcp.core.visible import visible

MARKS = (b'data-made-by="hcp"', b'content="hcp"', b'"schema": "hcp.')
"""One of these stands near the start of every picture, page and JSON that hcp makes."""
_START = 600


def check_outputs(paths: dict[str, str | None], reads: Iterable[str | None] = ()) -> None:
    """Says before any work is done what `write_ours` would say after it.

    Args:
        paths: the files to write, by the option that names them.
        reads: files that the same command reads; a plan or a profile is one of ours, and would be written over.

    Raises:
        HcpError: two options name one file, a file cannot be written, is not ours, or is read as well.
    """
    seen: dict[str, str] = {}
    sources = [os.path.realpath(path) for path in reads if path and "\0" not in path]
    for option, path in paths.items():
        if path is None:
            continue
        if os.path.realpath(path) in sources:
            raise HcpError(f"{option} {visible(path)}: is read as well, and would be lost; name another file")
        other = seen.setdefault(os.path.realpath(path), option)
        if other != option:
            raise HcpError(f"{other} and {option} both name {visible(path)}; wanted a file for each")
        folder = os.path.dirname(os.path.realpath(path))
        try:
            if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
                continue  # a device or a pipe
            if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
                raise HcpError(
                    f"{option} {visible(path)}: cannot be written; name a file in a folder that exists and is writable"
                )
            _check_ours(option, path)
        except (OSError, ValueError):
            continue  # `write_ours` has the words for it


def _check_ours(option: str, path: str) -> None:
    if _is_foreign(path):
        raise HcpError(
            f"{option} {visible(path)}: is there already and was not made by hcp; remove it, or name another file"
        )


def write_ours(option: str, path: str, text: str) -> None:
    """Writes the file whole, and says so on stderr.

    Raises:
        HcpError: it cannot be written, or is a file with anything that hcp did not make.
    """
    assert any(mark in text.encode()[:_START] for mark in MARKS), text[:_START]
    try:
        _check_ours(option, path)
        write_whole(path, text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no name of a file"
        raise HcpError(
            f"{option} {visible(path)}: cannot be written ({reason}); name a file in a folder that exists"
        ) from None
    say([f"wrote {path}"], err=True)


def _is_foreign(path: str) -> bool:
    """Whether a regular file of this name has content, and none of ours."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return False
    with open(path, "rb") as file:
        start = file.read(_START)
    return not any(mark in start for mark in MARKS)
