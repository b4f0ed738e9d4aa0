"""The repository that a file lies in."""

from __future__ import annotations

import os

from megatron_hcp.ground.asked import question

_MARKS = (".git", "pyproject.toml")


@question(lambda folder: ())
def enclosing_repository(folder: str) -> str | None:
    """The nearest folder at or above `folder` with a `.git` or a `pyproject.toml`, absolute; None: there is none.

    The root of the file system never counts: everything lies below it. Links on the way are not resolved.
    """
    here = os.path.abspath(folder)
    while (above := os.path.dirname(here)) != here:
        if any(os.path.lexists(os.path.join(here, mark)) for mark in _MARKS):
            return here
        here = above
    return None


@question(lambda folder: ())
def repository_root(folder: str) -> str | None:
    """The nearest folder at or above `folder` with a `.git`; without one, what `enclosing_repository` finds."""
    here = os.path.abspath(folder)
    while (above := os.path.dirname(here)) != here:
        if os.path.lexists(os.path.join(here, _MARKS[0])):
            return here
        here = above
    return enclosing_repository(folder)
