"""The files below a folder that may be launches, and those among them that a branch changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter

from megatron_hcp.ground.child import run_child
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.repository import repository_root
from megatron_hcp.ground.visible import visible
from megatron_hcp.project.config import excluded
from megatron_hcp.project.paths import matches
from megatron_hcp.project.place import config_file, path_in

_ENDINGS = (".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml")
_NOT_ENTERED = frozenset(("node_modules", "__pycache__", "site-packages"))
_MOST_FILES, _MOST_FOLDERS = 20_000, 80_000
_MOST_BYTES = 1_000_000
"""A larger file is data."""
_GIT_S = 30.0


def files_below(folder: str) -> list[str]:
    """The files that may be launches, sorted.

    Hidden folders, virtual environments, links, and what `.hcp.yaml` excludes are left out.

    Raises:
        HcpError: there are too many, or `.hcp.yaml` cannot be used.
    """
    found = list(islice(_walk(folder), _MOST_FILES + 1))
    if len(found) > _MOST_FILES:
        raise _too_many(folder, f"{_MOST_FILES:,} scripts and YAML files")
    return found


def kept_of(names: Iterable[str]) -> list[str]:
    """The files but for those that the `.hcp.yaml` above them excludes, themselves or with a folder above them.

    Raises:
        HcpError: a `.hcp.yaml` cannot be used.
    """
    return [name for name in names if not _is_excluded(os.path.abspath(name))]


def _is_excluded(path: str) -> bool:
    config = config_file(os.path.dirname(path))
    if config is None:
        return False
    inside = path_in(config[1], path).split("/")
    above = ["/".join(inside[:count]) for count in range(1, len(inside) + 1)]
    return any(matches(name, pattern) for pattern in excluded(config[0]) for name in above)


def _too_many(folder: str, what: str) -> HcpError:
    return HcpError(
        f"{visible(folder)} holds more than {what}",
        wanted="a folder of launches",
        do="name a folder in it, or exclude some in .hcp.yaml",
    )


def _walk(folder: str) -> Iterator[str]:
    config = config_file(os.path.abspath(folder))
    patterns, root = (excluded(config[0]), config[1]) if config is not None else ((), "")

    def is_left_out(path: str) -> bool:
        return bool(patterns) and any(matches(path_in(root, path), pattern) for pattern in patterns)

    waiting, entered = [folder], 0
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as listed:
                entries = sorted(listed, key=attrgetter("name"))
        except OSError:
            continue
        if here is not folder and any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        entered += 1
        if entered > _MOST_FOLDERS:
            raise _too_many(folder, f"{_MOST_FOLDERS:,} folders")
        inner = []
        for entry in entries:
            name = entry.name
            if name.startswith("."):
                continue
            if name.endswith(_ENDINGS) and _is_small(entry) and not is_left_out(entry.path):
                yield os.path.normpath(entry.path)
            elif entry.is_dir(follow_symlinks=False) and name not in _NOT_ENTERED and not is_left_out(entry.path):
                inner.append(entry.path)
        waiting += reversed(inner)


def _is_small(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file(follow_symlinks=False) and entry.stat().st_size <= _MOST_BYTES
    except OSError:
        return False


def changed_since(revision: str, folder: str) -> frozenset[str]:
    """The absolute paths of what differs from a revision of git, in commits or only here, and of new files.

    A file that was written anew with the same text may be among them.

    Runs `git`, without the programs that a repository's settings could name.

    Raises:
        HcpError: git is missing, the folder is in no repository, or there is no such revision.
    """
    root = repository_root(folder)
    if root is None or revision.startswith("-"):
        found = f"--changed {visible(revision)[:60]}" if root else f"{visible(folder)} is in no repository of git"
        raise HcpError(found, wanted="a revision, in a repository of git", do="name another")
    # Compares by what git knows of each file: reading one could start a filter that the repository names.
    differing = _git(root, ("diff-index", "--ignore-submodules", "--name-only", "-z", revision, "--"), revision)
    untracked = _git(root, ("ls-files", "--others", "--exclude-standard", "-z"), revision)
    names = (differing + untracked).split("\0")
    return frozenset(os.path.join(root, name) for name in names if name)


def _git(root: str, words: Sequence[str], revision: str) -> str:
    settings = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    try:
        done = run_child(("git", "-C", root, *settings, *words), timeout_s=_GIT_S)
    except OSError as error:
        raise HcpError(f"git can't be started ({error.strerror})", wanted="git", do="leave --changed out") from None
    if done.status != 0:
        said = visible(done.stderr.strip().splitlines()[0])[:200] if done.stderr.strip() else "no answer"
        raise HcpError(f"--changed {visible(revision)[:60]}: {said}", wanted="a revision of git", do="name another")
    return done.stdout
