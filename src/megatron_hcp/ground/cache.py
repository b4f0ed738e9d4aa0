"""hcp's cache: JSON in $XDG_CACHE_HOME/hcp, each entry under a digest of what it is about and of hcp itself.

Where the folder can't be read or written, hcp works without.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

from megatron_hcp import __version__
from megatron_hcp.ground.errors import HcpError

MAX_BYTES = 200_000_000
"""For all entries together; the oldest go first."""
MAX_ENTRY = 20_000_000


def digest_of(parts: Iterable[str | bytes]) -> str:
    """The digest of some texts in their order, and of hcp's own code and tables."""
    whole = hashlib.sha256(_own_digest())
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()


def kept(digest: str) -> Any:
    """What was kept under this digest; None if nothing was."""
    from megatron_hcp.ground.files import read_regular

    try:
        return json.loads(read_regular(_file(digest), "an entry of hcp's cache", limit=MAX_ENTRY))
    except (HcpError, ValueError, RecursionError):
        return None


def keep(digest: str, data: Any) -> None:
    """Keeps data that JSON can represent, if the folder can be written."""
    from megatron_hcp.ground.files import write_whole

    text = json.dumps(data, separators=(",", ":"))
    if len(text) > MAX_ENTRY:
        return
    with suppress(OSError):
        os.makedirs(folder(), mode=0o700, exist_ok=True)
        write_whole(_file(digest), text)
        _make_room()


def folder() -> str:
    """Where the entries are."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "hcp")


def _file(digest: str) -> str:
    return os.path.join(folder(), f"{digest}.json")


def _make_room() -> None:
    """Removes the oldest entries beyond the limit."""
    with os.scandir(folder()) as entries:
        found = [(entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in entries if entry.is_file()]
    excess = sum(size for _, size, _ in found) - MAX_BYTES
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        with suppress(OSError):
            os.unlink(path)
        excess -= size


@cache
def _own_digest() -> bytes:
    """Of the package's files by name, size and time: a checkout changes without changing its version."""
    whole = hashlib.sha256(__version__.encode())
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for room in ("ground", "launch", "validators"):
        for here, rooms, files in os.walk(os.path.join(package, room)):
            rooms.sort()
            for name in sorted(file for file in files if file.endswith((".py", ".txt"))):
                status = os.stat(os.path.join(here, name))
                whole.update(f"{room}/{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return whole.digest()
