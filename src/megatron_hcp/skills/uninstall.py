"""Removes skills that hcp installed: nothing else, and no user changes unless asked to."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import locked
from megatron_hcp.ground.visible import visible
from megatron_hcp.skills.installed import backup_path, is_link, present, recorded, refuse_links


class Removal(NamedTuple):
    """An installed skill: where it is, what the user changed, and where the changes are kept once it is removed.

    `is_left`: it stays because of them.
    """

    name: str
    path: Path
    edits: list[str]
    backup: Path | None = None
    is_left: bool = False


def installed_in(place: Path, names: Sequence[str], *, given: bool) -> list[Removal]:
    """The skills in a folder that hcp installed, according to their records: those named, or all.

    Raises:
        HcpError: a skill is not there or was not installed by hcp, or the path contains a link that was not named.
    """
    if not given:
        refuse_links(place)
    if not place.is_dir():
        if names:
            raise HcpError(
                f"{visible(str(place))} is not a folder", wanted="the skills' folder", do="name it with --dir"
            )
        return []
    found = []
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            wanted = f"the name of its folder in {visible(str(place))}"
            raise HcpError(f"{visible(name)[:100]!r} is not a skill name", wanted=wanted, do="name a folder with --dir")
    for name in names or sorted(os.listdir(place)):
        target = place / name
        record = None if target.is_symlink() or name.startswith(".") else recorded(target)
        if record is not None:
            there = present(target)
            edits = [path for path in {**there, **record} if there.get(path) != record.get(path)]
            found.append(Removal(name, target, sorted(edits)))
        elif names:
            raise _not_ours(target, place)
    return found


def uninstall_skills(names: Sequence[str], place: Path, *, force: bool, given: bool) -> Iterator[Removal]:
    """Removes the skills and yields each. Those that the user changed are left; with `force`, they are kept in
    `BACKUPS`.

    Raises:
        HcpError: as for `installed_in`.
    """
    if not installed_in(place, names, given=given):
        return
    try:
        with locked(place):
            for one in installed_in(place, names, given=given):
                is_left = bool(one.edits) and not force
                yield one._replace(is_left=is_left, backup=None if is_left else _remove(one, place))
    except OSError as error:
        raise HcpError(
            f"cannot remove from {visible(str(place))}: {error.strerror}", wanted="a folder that can be written"
        ) from None


def _remove(one: Removal, place: Path) -> Path | None:
    """The folder is renamed first, so that an agent finds the complete skill or nothing."""
    if one.edits:
        backup = backup_path(one.name, place)
        os.rename(one.path, backup)
        return backup
    room = Path(tempfile.mkdtemp(prefix=f".{one.name}.hcp-", dir=place))
    os.rename(one.path, room / "old")
    shutil.rmtree(room, ignore_errors=True)
    return None


def _not_ours(target: Path, place: Path) -> HcpError:
    if target.is_symlink():
        return is_link(target)
    if target.exists():
        return HcpError(
            f"{visible(str(target))} was not installed by hcp", wanted="a skill with its record", do="remove it by hand"
        )
    return HcpError(
        f"{visible(target.name)} is not in {visible(str(place))}",
        wanted="an installed skill",
        do="--dry-run lists them",
    )
