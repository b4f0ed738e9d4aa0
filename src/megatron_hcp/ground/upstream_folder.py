"""Upstream's wheels unpacked on this machine: $HCP_UPSTREAM, else ~/.cache/hcp-upstream.

`python tests/fetch_upstream.py` puts them there, one folder PACKAGE-X.Y.Z per release.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from megatron_hcp.ground.errors import HcpError


def unpacked_releases(package: str) -> dict[str, Path]:
    """The folders of a package, by version, oldest first."""
    found = {folder.name.rpartition("-")[2]: folder for folder in _place().glob(f"{package}-[0-9]*")}
    return {version: found[version] for version in sorted(found, key=_numbers)}


def unpacked(package: str, release: str | None = None) -> Path:
    """The folder of a release, or of the newest.

    Raises:
        HcpError: it isn't there.
    """
    found = unpacked_releases(package)
    version = release or next(reversed(found), None)
    if version not in found:
        raise HcpError(
            f"{_place()}: found no {package}-{version or 'X.Y.Z'}",
            wanted="its wheel unpacked there",
            do="set HCP_UPSTREAM to the folder that contains it",
        )
    return found[version]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall("[0-9]+", version)]


def _place() -> Path:
    return Path(os.environ.get("HCP_UPSTREAM") or Path.home() / ".cache/hcp-upstream")
