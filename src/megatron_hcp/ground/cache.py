"""hcp's cache: JSON in $XDG_CACHE_HOME/hcp, each entry under a digest of what it is about and of hcp itself.

Where the folder can't be read or written, hcp works without.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
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
    keep_all({digest: data})


def keep_all(entries: Mapping[str, Any]) -> None:
    """The same for several entries."""
    texts = {digest: json.dumps(data, separators=(",", ":")) for digest, data in entries.items()}
    with suppress(OSError):
        os.makedirs(folder(), mode=0o700, exist_ok=True)
        for digest, text in texts.items():
            if len(text) <= MAX_ENTRY:
                _write(_file(digest), text)
        _make_room()


def _write(path: str, text: str) -> None:
    """Replaces the file at once. It need not survive a crash of the machine, so nothing waits for the disk."""
    part = f"{path}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(part, flags, 0o600), "w", encoding="ascii") as file:
        file.write(text)
    os.replace(part, path)


def is_writable() -> bool:
    """Whether entries can be kept."""
    with suppress(OSError):
        os.makedirs(folder(), mode=0o700, exist_ok=True)
    return os.access(folder(), os.W_OK)


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
    """Of Python, of the reader of YAML, and of the package's files by name, size and time: a checkout changes without
    changing its version."""
    reader = find_spec("yaml")
    whole = hashlib.sha256(f"{__version__} {sys.version}".encode())
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for top in (package, *(reader.submodule_search_locations or () if reader else ())):
        for here, rooms, files in os.walk(top):
            rooms[:] = sorted(name for name in rooms if name != "__pycache__")
            for name in sorted(files):
                status = os.stat(os.path.join(here, name))
                whole.update(f"{here}/{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return whole.digest()
