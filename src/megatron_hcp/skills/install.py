"""Copies skills to where agents look for them: completely or not at all, never through links or over a user's edits."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import locked, read_regular
from megatron_hcp.ground.line_diff import unified
from megatron_hcp.ground.visible import visible
from megatron_hcp.skills.card import skill_file
from megatron_hcp.skills.installed import (
    BACKUPS,
    RECORD_PATH,
    backup_path,
    digest,
    few,
    is_link,
    present,
    record_of,
    recorded,
    refuse_links,
)
from megatron_hcp.skills.skill import files_of

_MAX_BYTES = 50_000_000
UP_TO_DATE, LEFT = "up to date", "left"


class Installed(NamedTuple):
    """What was done with a skill: `how` is new, up to date, repaired, replaced or left; `backup` is where the files are
    kept that the user changed, and `edits` are those of a skill that was left."""

    name: str
    path: Path
    how: str
    backup: Path | None = None
    edits: Sequence[str] = ()


class _File(NamedTuple):
    data: bytes
    is_program: bool


class Copy(NamedTuple):
    """A copy to be made: the files by path, the destination, what happens to existing files, and the user's changes."""

    name: str
    files: dict[str, _File]
    target: Path
    how: str
    edits: list[str]

    def difference(self) -> Iterator[str]:
        """Lines of a unified diff from this version to the user's edited one."""
        for path in self.edits:
            wanted = self.files[path].data if path in self.files else b""
            there: bytes = b""
            try:
                yours = file_below(str(self.target), path, "a file")
                there = read_regular(yours, "a file") if yours else b""
            except HcpError:
                there = b"(no regular file)"
            before, after = (data.decode("utf-8", "replace").splitlines() for data in (wanted, there))
            yield from unified(before, after, f"shipped/{path}", f"yours/{path}", context=1, end="")


def plan_copies(folders: Sequence[Path], place: Path, *, given: bool) -> list[Copy]:
    """What copying the skills into the folder `place` would do; nothing is written.

    `given`: the user named the folder; otherwise no part of it may be a link.

    Raises:
        HcpError: a skill or the folder cannot be used.
    """
    sources = {folder.name: folder for folder in folders}
    if len(sources) < len(set(folders)):
        raise HcpError(
            "found two skills with the same name", wanted="each name once", do="install them into two folders"
        )
    if not given:
        refuse_links(place)
    return [_plan(name, _files(folder), place) for name, folder in sources.items()]


def install_skills(
    folders: Sequence[Path], place: Path, *, force: bool, given: bool, update: bool = False
) -> Iterator[Installed]:
    """Copies the skills into the folder `place`, which is created if missing, and yields what was done with each.

    A skill that is already there and complete is left alone. Another version is replaced with `update` or `force`, and
    one with files that the user changed only with `force`; the changed files are kept in `BACKUPS`. With `update`, such
    a skill is left, and the others are replaced.

    Raises:
        HcpError: as for `plan_copies`, or something exists that must not be overwritten; then nothing is copied.
    """
    plan_copies(folders, place, given=given)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with locked(place):
            copies = plan_copies(folders, place, given=given)
            if not force and not update:
                _refuse(copies, place)
            for copy in copies:
                if copy.how == "replaced" and copy.edits and not force:
                    yield Installed(copy.name, copy.target, LEFT, edits=copy.edits)
                    continue
                backup = None if copy.how == UP_TO_DATE else _put(copy, place)
                yield Installed(copy.name, copy.target, copy.how, backup)
    except OSError as error:
        raise HcpError(
            f"cannot copy to {visible(str(place))}: {error.strerror}",
            wanted="a writable folder",
            do="name one with --dir",
        ) from None


def _files(folder: Path) -> dict[str, _File]:
    found: dict[str, _File] = {}
    for name in files_of(folder):
        if name != RECORD_PATH:
            path = skill_file(folder, name, "a file of a skill")
            data = read_regular(path, "a file of a skill")
            found[name] = _File(data, os.access(path, os.X_OK))
    if sum(len(file.data) for file in found.values()) > _MAX_BYTES:
        raise HcpError(
            f"{visible(str(folder))} has more than {_MAX_BYTES:,} bytes", wanted="a skill", do="check the path"
        )
    return found


def _plan(name: str, files: dict[str, _File], place: Path) -> Copy:
    target = place / name
    if target.is_symlink():
        raise is_link(target)
    if not target.exists():
        return Copy(name, files, target, "new", [])
    if not target.is_dir():
        raise HcpError(f"{visible(str(target))} is not a folder", wanted="a skill or nothing there", do="move it away")
    shipped = {path: digest(file.data) for path, file in files.items()}
    record, there = recorded(target), present(target)
    edits = [path for path, found in there.items() if found not in (shipped.get(path), (record or {}).get(path))]
    edits += [path for path in record or () if path not in there]
    if there == shipped:
        how = UP_TO_DATE
    elif record is None and not edits and there.items() <= shipped.items():
        how = "repaired"  # an older hcp was interrupted: only part of the skill, and nothing else
    else:
        how = "replaced"
    return Copy(name, files, target, how, sorted(edits))


def _refuse(copies: Sequence[Copy], place: Path) -> None:
    """Raises if something would be overwritten without the user's consent."""
    edited = [f"{copy.name} ({few(copy.edits)})" for copy in copies if copy.how == "replaced" and copy.edits]
    if edited:
        raise HcpError(
            f"found changed files in {', '.join(edited)} in {visible(str(place))}; nothing was copied",
            do=f"add --dry-run to see the difference, --force to replace them: your files are kept in {BACKUPS}",
        )
    others = [copy.name for copy in copies if copy.how == "replaced"]
    if others:
        raise HcpError(
            f"found other versions of {', '.join(others)} in {visible(str(place))}; nothing was copied",
            do="run hcp skills update, or add --force to replace",
        )


def _is_room(folder: Path) -> bool:
    """Whether a folder was made by an install: it contains the new and the old copy, and nothing else."""
    return folder.is_dir() and not folder.is_symlink() and set(os.listdir(folder)) <= {"new", "old"}


def _put(copy: Copy, place: Path) -> Path | None:
    """Makes the copy next to its destination, then renames it; returns where the old one is kept, if it is."""
    prefix = f".{copy.name}.hcp-"
    for left in os.listdir(place):
        if left.startswith(prefix) and _is_room(place / left):  # left by a killed run: nobody else holds the lock
            shutil.rmtree(place / left, ignore_errors=True)
    room = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    try:
        new = room / "new"
        record = record_of({name: digest(file.data) for name, file in copy.files.items()})
        for name, file in (copy.files | {RECORD_PATH: _File(record, False)}).items():
            _write(new / name, file)
        if copy.how == "new":
            os.rename(new, copy.target)
            return None
        backup = backup_path(copy.name, place) if copy.edits else None
        old = backup or room / "old"
        os.rename(copy.target, old)
        try:
            os.rename(new, copy.target)
        except BaseException:
            os.rename(old, copy.target)
            raise
        return backup
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _write(path: Path, file: _File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o777 if file.is_program else 0o666
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as out:
        out.write(file.data)
        out.flush()
        os.fsync(out.fileno())
