"""What may be read below a folder: every name from outside that is joined to a folder passes here."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from megatron_hcp.ground.asked import question
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible


def _meant(root: str, name: str, wanted: str, *, of: str | None = None, follow: bool = False) -> Iterable[str]:
    return (os.path.normpath(os.path.join(root if of is None else of, name)),) if "\0" not in name else ()


@question(_meant)
def file_below(root: str, name: str, wanted: str, *, of: str | None = None, follow: bool = False) -> str | None:
    """The path of the regular file that a name from outside means, if it lies below a folder; None: there is none.

    An absolute name means none, nor does one whose `..` lead out. Links are resolved, and must not lead out either.

    Args:
        root: the folder below which files may be read.
        name: the path as it is written, for use in the folder `of`.
        wanted: what the file should be, for the message.
        of: the folder that the name starts from; `root` if it is not given.
        follow: whether links may lead out: in folders that an installer fills with links to its cache.

    Raises:
        HcpError: what is there may not be read: a link leads out, or it is a folder, a pipe or a device.
    """
    path = os.path.normpath(os.path.join(root if of is None else of, name))
    if not name or name.startswith("/") or "\0" in name or not _is_below(os.path.abspath(path), os.path.abspath(root)):
        return None
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # missing, a link to nothing, a loop, a name that is too long
        if not os.path.islink(path):
            return None
        mode = 0
    if not follow and not _is_below(os.path.realpath(path), os.path.realpath(root)):
        raise HcpError(
            f"{visible(path)[:300]} leads elsewhere",
            wanted=f"{wanted} inside {visible(root)[:300]}",
            do="put the file itself there",
        )
    if not stat.S_ISREG(mode):
        raise HcpError(f"{visible(path)[:300]} is not a regular file", wanted=wanted, do="put a file there")
    return path


@question(_meant)
def folder_below(root: str, name: str, wanted: str, *, of: str | None = None) -> str | None:
    """The path of the folder that a name from outside means, as `file_below` finds a file; None: there is none.

    Raises:
        HcpError: a link leads out.
    """
    path = os.path.normpath(os.path.join(root if of is None else of, name))
    if (
        not name
        or name.startswith("/")
        or "\0" in name
        or not _is_below(f"{os.path.abspath(path)}/", os.path.abspath(root))
    ):
        return None
    if not os.path.isdir(path):
        return None
    if not _is_below(f"{os.path.realpath(path)}/", os.path.realpath(root)):
        raise HcpError(
            f"{visible(path)[:300]} leads elsewhere",
            wanted=f"{wanted} inside {visible(root)[:300]}",
            do="put the folder itself there",
        )
    return path


def _is_below(path: str, root: str) -> bool:
    """Whether one absolute path without `..` lies below another."""
    return path.startswith(root.rstrip("/") + "/")
