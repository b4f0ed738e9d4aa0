"""Writes pictures and plans where the user asks, and overwrites only files that hcp made."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from megatron_hcp.cli.screen import say
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import write_whole
from megatron_hcp.ground.visible import visible

MARKS = (b'data-made-by="hcp"', b'content="hcp"', b'"schema": "hcp.')
"""Every picture, page and JSON file that hcp makes has one of these near its start."""
_START = 600


def check_outputs(paths: dict[str, str | None], reads: Iterable[str | None] = ()) -> None:
    """Raises before any work is done the errors that `write_ours` would raise after it.

    Args:
        paths: the files to write, keyed by the option that names them.
        reads: files that the same command reads; as hcp's own files they would otherwise be overwritten.

    Raises:
        HcpError: two options name the same file, or a file cannot be written, was not made by hcp, or is also read.
    """
    seen: dict[str, str] = {}
    sources = [os.path.realpath(path) for path in reads if path and "\0" not in path]
    for option, path in paths.items():
        if path is None:
            continue
        if os.path.realpath(path) in sources:
            raise HcpError(f"{option} {visible(path)}: is also read and would be overwritten", do="name another file")
        other = seen.setdefault(os.path.realpath(path), option)
        if other != option:
            raise HcpError(f"{other} and {option} both name {visible(path)}", wanted="a file for each")
        folder = os.path.dirname(os.path.realpath(path))
        try:
            if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
                continue  # a device or a pipe
            if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
                raise HcpError(
                    f"{option} {visible(path)}: cannot be written",
                    do="name a file in a folder that exists and is writable",
                )
            _check_ours(option, path)
        except (OSError, ValueError):
            continue  # `write_ours` reports it


def _check_ours(option: str, path: str) -> None:
    if _is_foreign(path):
        raise HcpError(
            f"{option} {visible(path)}: already exists and was not made by hcp", do="remove it, or name another file"
        )


def write_ours(option: str, path: str, text: str) -> None:
    """Writes the file completely or not at all, and reports it on stderr.

    Raises:
        HcpError: it cannot be written, or it exists with content that hcp did not make.
    """
    assert any(mark in text.encode()[:_START] for mark in MARKS), text[:_START]
    try:
        _check_ours(option, path)
        write_whole(path, text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise HcpError(
            f"{option} {visible(path)}: cannot be written ({reason})", do="name a file in a folder that exists"
        ) from None
    say([f"wrote {path}"], err=True)


def _is_foreign(path: str) -> bool:
    """Whether a regular file of this name has content that hcp did not make."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return False
    with open(path, "rb") as file:
        start = file.read(_START)
    return not any(mark in start for mark in MARKS)
