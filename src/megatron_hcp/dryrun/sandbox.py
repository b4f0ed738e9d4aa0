"""The limits of upstream's process: no network, nothing writable but its folder, where the system allows it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from megatron_hcp.ground.child import run_child

_UNSHARE = ("unshare", "--user", "--map-root-user")
_MOUNTS = (
    'mount --bind "$1" "$1" && shift && while [ "$1" != -- ]; do mount --bind "$1" "$1" && '
    'mount -o remount,bind,ro "$1" && shift || exit 1; done && mount -o remount,bind,ro / && shift && '
    'exec unshare --user --map-root-user --mount --net -- "$@"'
)
"""The folder $1 becomes a mount of its own, so that it stays writable; upstream's trees, to --, may lie on others.

The program gets namespaces below these: in its own it would be root, and could make all of it writable again. The
loopback interface it must be able to start, so its network is its own too."""
_PASSED = ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")
_TEST_S = 20


class Sandbox(NamedTuple):
    """How to start the process, and what of its limits holds here: each says why not, or is ""."""

    words: tuple[str, ...]
    network: str
    files: str


def sandbox(folder: str, *roots: str) -> Sandbox:
    """What this system allows, found by trying it."""
    if shutil.which("unshare") is None:
        missing = "unshare is not installed"
        return Sandbox((), missing, missing)
    mounts = ("sh", "-c", _MOUNTS, "sh", folder, *roots, "--")
    both = (*_UNSHARE, "--mount", "--net", "--", *mounts)
    if _works(both):
        return Sandbox(both, "", "")
    alone = (*_UNSHARE, "--net", "--")
    if _works(alone):
        return Sandbox(alone, "", "this system allows no mounts of one's own")
    refused = "this system allows no namespaces of one's own"
    return Sandbox((), refused, refused)


def _works(words: Sequence[str]) -> bool:
    try:
        return run_child([*words, "true"], timeout_s=_TEST_S).status == 0
    except OSError:
        return False


def environment(folder: str, more: Mapping[str, str]) -> list[str]:
    """`env` with the few variables that the process gets: no credential, and no home but its folder."""
    kept = {name: os.environ[name] for name in _PASSED if name in os.environ}
    kept |= {"HOME": folder, "TMPDIR": folder, "TRITON_CACHE_DIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    kept |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return ["env", "-i", *(f"{name}={value}" for name, value in {**kept, **more}.items())]
