"""Copies skills to where agents look for them: whole or not at all, through no link, and over nobody's edits."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hcp import __version__
from hcp.cards.card import is_ours
from hcp.cards.skill import MAX_FILES, files_of
from hcp.core.errors import HcpError
from hcp.core.files import locked, read_regular
from hcp.core.schema import TEXT, Fields, MapOf, checked
from hcp.core.visible import visible

RECORD_PATH = "config/installed.json"
"""In an installed skill: what was copied, so that what a person changed can be told apart."""
SCHEMA = "hcp.installed/1"
BACKUPS = ".hcp-backup"
"""In the folder of the skills; agents pass over hidden folders."""
_SHAPE = Fields({"files": MapOf(TEXT)}, others=True)
_MAX_BYTES = 50_000_000


class Installed(NamedTuple):
    """What became of one skill: `how` is new, unchanged, repaired or replaced; `backup` is where edits are kept."""

    name: str
    path: Path
    how: str
    backup: Path | None = None


class _File(NamedTuple):
    data: bytes
    is_program: bool


class _Plan(NamedTuple):
    name: str
    files: dict[str, _File]
    target: Path
    how: str
    edits: list[str]


def install_skills(folders: Sequence[Path], place: Path, *, force: bool, given: bool) -> Iterator[Installed]:
    """Copies the skills into the folder `place`, which is made where it is missing, and yields what became of each.

    A skill that is there already and complete stays as it is; one of another version, or with files that a person
    changed, is replaced only with `force`, and what was changed is kept in `BACKUPS`. `given` says that the user named
    the folder: else no part of it may be a link, because a checkout from elsewhere may hold one.

    Raises:
        HcpError: a skill or the folder cannot be used, or something is there that is not to be overwritten; nothing
            is copied then.
    """
    sources = {folder.name: folder for folder in folders}
    if len(sources) < len(set(folders)):
        raise HcpError("found two skills of one name; wanted each name once; install them into two folders")
    if not given:
        for path in [place, *place.parents]:
            if path.is_symlink():
                raise _is_link(path)
    files = {name: _files(folder) for name, folder in sources.items()}
    try:
        place.mkdir(parents=True, exist_ok=True)
        with locked(place):
            plans = [_plan(name, files[name], place) for name in sources]
            _refuse(plans, place, force)
            for plan in plans:
                backup = None if plan.how == "unchanged" else _put(plan, place)
                yield Installed(plan.name, plan.target, plan.how, backup)
    except OSError as error:
        raise HcpError(
            f"cannot copy to {visible(str(place))}: {error.strerror}; wanted a folder that can be written; "
            "name one with --to"
        ) from None


def _files(folder: Path) -> dict[str, _File]:
    found: dict[str, _File] = {}
    for name in files_of(folder):
        if name != RECORD_PATH:
            path = folder / name
            data = read_regular(path, "a file of a skill", inside=None if is_ours(folder) else folder)
            found[name] = _File(data, os.access(path, os.X_OK))
    if sum(len(file.data) for file in found.values()) > _MAX_BYTES:
        raise HcpError(f"{visible(str(folder))} has more than {_MAX_BYTES:,} bytes; wanted a skill; check the path")
    return found


def _plan(name: str, files: dict[str, _File], place: Path) -> _Plan:
    target = place / name
    if target.is_symlink():
        raise _is_link(target)
    if not target.exists():
        return _Plan(name, files, target, "new", [])
    if not target.is_dir():
        raise HcpError(f"{visible(str(target))} is no folder; wanted a skill or nothing there; move it away")
    shipped = {path: _digest(file.data) for path, file in files.items()}
    recorded = _recorded(target)
    present = {path: digest for path, digest in _present(target).items() if path != RECORD_PATH}
    edits = [path for path, digest in present.items() if digest not in (shipped.get(path), (recorded or {}).get(path))]
    edits += [path for path in recorded or () if path not in present]
    if present == shipped:
        how = "unchanged"
    elif recorded is None and not edits and present.items() <= shipped.items():
        how = "repaired"  # an older hcp was interrupted: a part of what it copied, and nothing else
    else:
        how = "replaced"
    return _Plan(name, files, target, how, sorted(edits))


def _refuse(plans: Sequence[_Plan], place: Path, force: bool) -> None:
    """Raises if something would be overwritten that the user has not agreed to."""
    if force:
        return
    edited = [f"{plan.name} ({_few(plan.edits)})" for plan in plans if plan.how == "replaced" and plan.edits]
    if edited:
        raise HcpError(
            f"found changed files in {', '.join(edited)} in {visible(str(place))}; nothing was copied; "
            f"add --force to replace them: what you have is kept in {BACKUPS}"
        )
    others = [plan.name for plan in plans if plan.how == "replaced"]
    if others:
        raise HcpError(
            f"found {', '.join(others)} of another version in {visible(str(place))}; nothing was copied; "
            "add --force to replace"
        )


def _is_room(folder: Path) -> bool:
    """Whether a folder is one that an install made: it holds the new and the old copy, and nothing else."""
    return folder.is_dir() and not folder.is_symlink() and set(os.listdir(folder)) <= {"new", "old"}


def _put(plan: _Plan, place: Path) -> Path | None:
    """Makes the copy beside its place, then gives it its name; where the old one is kept, if it is."""
    prefix = f".{plan.name}.hcp-"
    for left in os.listdir(place):
        if left.startswith(prefix) and _is_room(place / left):  # of a run that was killed: nobody else has the lock
            shutil.rmtree(place / left, ignore_errors=True)
    room = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    try:
        new = room / "new"
        record = {"schema": SCHEMA, "hcp": __version__, "files": {n: _digest(f.data) for n, f in plan.files.items()}}
        files = plan.files | {RECORD_PATH: _File((json.dumps(record, indent=2) + "\n").encode(), False)}
        for name, file in files.items():
            _write(new / name, file)
        if plan.how == "new":
            os.rename(new, plan.target)
            return None
        backup = _backup(plan.name, place) if plan.edits else None
        old = backup or room / "old"
        os.rename(plan.target, old)
        try:
            os.rename(new, plan.target)
        except BaseException:
            os.rename(old, plan.target)
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


def _backup(name: str, place: Path) -> Path:
    folder = place / BACKUPS
    if folder.is_symlink():
        raise _is_link(folder)
    folder.mkdir(exist_ok=True)
    number = 1
    while os.path.lexists(folder / f"{name}-{number}"):
        number += 1
    return folder / f"{name}-{number}"


def _recorded(target: Path) -> dict[str, str] | None:
    """What was installed, by the record in the skill; None where there is none that can be read."""
    try:
        data = json.loads(read_regular(target / RECORD_PATH, "a record", inside=target))
        checked(data, _SHAPE, RECORD_PATH)
    except (HcpError, ValueError, RecursionError):
        return None
    files: dict[str, str] = data["files"]
    return files


def _present(target: Path) -> dict[str, str]:
    """What lies in a folder, by path, with the digest of each; a link or anything odd has one that no file has."""
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(target):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in [*names, *links]:
            path = Path(folder, name)
            try:
                digest = _digest(read_regular(path, "a file", inside=target))
            except HcpError:
                digest = "unreadable"
            found[path.relative_to(target).as_posix()] = digest
        if len(found) > MAX_FILES:
            raise HcpError(f"{visible(str(target))} has more than {MAX_FILES:,} files; wanted a skill; move it away")
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _few(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return visible(", ".join(paths[:3])) + more


def _is_link(path: Path) -> HcpError:
    return HcpError(
        f"{visible(str(path))} is a link; wanted a folder, because nothing is written through links; "
        "remove it, or name the folder that it leads to with --to"
    )
