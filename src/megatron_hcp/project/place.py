"""Where a repository's own files for hcp lie, and how a launch is named in them."""

from __future__ import annotations

import os
from functools import cache

from megatron_hcp.ground.asked import question
from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.repository import repository_root

CONFIG = ".hcp.yaml"
BASELINE = ".hcp-baseline.json"
PYPROJECT = "pyproject.toml"
_TABLE = b"[tool.hcp"
_MOST_OF_PYPROJECT = 1_000_000


def folder_of(target: str) -> str | None:
    """The folder that the search for a launch's files starts from.

    For standard input and for words alone ("") it is the working folder, if that lies in a repository; else None.
    """
    if target in ("", "-"):
        return os.getcwd() if repository_root(os.getcwd()) is not None else None
    return os.path.dirname(os.path.abspath(target))


def path_in(root: str, target: str) -> str:
    """A launch's path below the root, as `.hcp.yaml` and a baseline write it; "-" for what is no file."""
    return os.path.relpath(os.path.abspath(target), root) if target not in ("", "-") else "-"


def _places(folder: str) -> list[str]:
    """Where a `.hcp.yaml` of the folder may lie."""
    root = repository_root(folder) or folder
    places = [folder]
    while places[-1] != root:
        places.append(os.path.dirname(places[-1]))
    return [os.path.join(place, CONFIG) for place in places]


@question(_places)
@cache
def config_file(folder: str) -> tuple[str, str] | None:
    """(file, root): the nearest `.hcp.yaml`, or pyproject.toml with `[tool.hcp]`, from a folder up to its root.

    The root is the repository's; outside of one, the folder itself.

    Raises:
        HcpError: the file is no regular file, or a link that leads out of the repository.
    """
    root = repository_root(folder) or folder
    here = folder
    while True:
        if (found := file_below(root, CONFIG, "hcp's settings", of=here)) is not None:
            return found, root
        pyproject = file_below(root, PYPROJECT, "the project's settings", of=here)
        if pyproject is not None and _has_table(pyproject):
            return pyproject, root
        if here == root:
            return None
        here = os.path.dirname(here)


@question(lambda folder: (os.path.join(repository_root(folder) or folder, BASELINE),))
@cache
def baseline_root(folder: str) -> str | None:
    """The root of the folder's repository, if a baseline lies there."""
    root = repository_root(folder) or folder
    return root if os.path.lexists(os.path.join(root, BASELINE)) else None


def forget_places() -> None:
    """Has the files looked for again: for a process that lives longer than they do."""
    config_file.__wrapped__.cache_clear()  # type: ignore[attr-defined]
    baseline_root.__wrapped__.cache_clear()  # type: ignore[attr-defined]


def has_project(target: str) -> bool:
    """Whether a `.hcp.yaml` holds for a target.

    Raises:
        HcpError: as `config_file`.
    """
    folder = folder_of(target)
    return folder is not None and config_file(folder) is not None


def has_baseline(target: str) -> bool:
    """Whether a baseline may hold for a target."""
    folder = folder_of(target)
    return folder is not None and baseline_root(folder) is not None


def _has_table(path: str) -> bool:
    from megatron_hcp.ground.files import read_regular

    return _TABLE in read_regular(path, "the project's settings", limit=_MOST_OF_PYPROJECT)
