"""Skills in the folders where agents look for them: what was copied there, and what was changed since."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from megatron_hcp import __version__
from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_regular
from megatron_hcp.ground.schema import TEXT, Fields, MapOf, checked
from megatron_hcp.ground.visible import visible
from megatron_hcp.skills.skill import MAX_FILES

AGENT_FOLDERS = {
    "agents": ".agents/skills",
    "claude": ".claude/skills",
    "codex": ".agents/skills",
    "copilot": ".agents/skills",
    "cursor": ".agents/skills",
    "gemini": ".agents/skills",
}
"""Where each agent looks for the skills of a project, as in the npm package `skills` 1.5.18; `agents` is the
folder that most agents share."""
RECORD_PATH = "config/installed.json"
"""The record in an installed skill of what was copied, so that the user's changes can be recognised."""
SCHEMA = "hcp.installed/1"
BACKUPS = ".hcp-backup"
"""The backup folder among the skills; agents ignore hidden folders."""
_SHAPE = Fields({"files": MapOf(TEXT)}, others=True)


def digest(data: bytes) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def digest_of(folder: Path) -> str:
    """The SHA-256 of a skill, over its files' paths and digests."""
    lines = [f"{found} {path}\n" for path, found in sorted(present(folder).items())]
    return digest("".join(lines).encode())


def record_of(digests: dict[str, str]) -> bytes:
    """The record of an installed skill: the digest of each file, by its path inside the skill."""
    record = {"schema": SCHEMA, "hcp": __version__, "files": digests}
    return (json.dumps(record, indent=2) + "\n").encode()


def recorded(target: Path) -> dict[str, str] | None:
    """What was installed, from the record in the skill; None without a readable record."""
    try:
        data = json.loads(read_regular(file_below(str(target), RECORD_PATH, "a record") or "", "a record"))
        checked(data, _SHAPE, RECORD_PATH)
    except (HcpError, ValueError, RecursionError):
        return None
    files: dict[str, str] = data["files"]
    return files


def present(target: Path) -> dict[str, str]:
    """The contents of a folder except the record: the digest of each file, by path.

    A link or a special file gets a digest that no file can have.

    Raises:
        HcpError: there are more files than a skill may have.
    """
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(target):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in [*names, *links]:
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, target)
            try:
                found[inside] = "a link" if os.path.islink(path) else digest(read_regular(path, "a file"))
            except HcpError:
                found[inside] = "unreadable"
        if len(found) > MAX_FILES:
            raise HcpError(
                f"{visible(str(target))} has more than {MAX_FILES:,} files", wanted="a skill", do="move it away"
            )
    found.pop(RECORD_PATH, None)
    return found


def backup_path(name: str, place: Path) -> Path:
    """A free place for the user's files, next to the skills; creates the backup folder.

    Raises:
        HcpError: that folder is a link.
    """
    folder = place / BACKUPS
    if folder.is_symlink():
        raise is_link(folder)
    folder.mkdir(exist_ok=True)
    number = 1
    while os.path.lexists(folder / f"{name}-{number}"):
        number += 1
    return folder / f"{name}-{number}"


def refuse_links(place: Path) -> None:
    """Raises HcpError if a part of the path is a link: a checkout from elsewhere may hold one."""
    for path in [place, *place.parents]:
        if path.is_symlink():
            raise is_link(path)


def is_link(path: Path) -> HcpError:
    """The error for a link in the path, with what to do."""
    return HcpError(
        f"{visible(str(path))} is a link",
        wanted="a folder, because nothing is written through links",
        do="remove it, or name the folder that it leads to with --dir",
    )


def few(paths: Sequence[str]) -> str:
    """The first three, and how many more there are."""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return visible(", ".join(paths[:3])) + more
