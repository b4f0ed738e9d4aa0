"""Where the unpacked wheels of Transformer Engine are: $HCP_UPSTREAM, else ~/.cache/hcp-upstream.

`python tests/fetch_upstream.py` puts them there, one folder transformer-engine-X.Y.Z per release.
"""

from __future__ import annotations

import os
from pathlib import Path

from packaging.version import Version

from hcp.core.errors import HcpError


def unpacked_releases() -> dict[str, Path]:
    """The folders, by version, the oldest first."""
    place = _place()
    found = {folder.name.rpartition("-")[2]: folder for folder in place.glob("transformer-engine-[0-9]*")}
    return {version: found[version] for version in sorted(found, key=Version)}


def unpacked(release: str | None = None) -> Path:
    """The folder of a release, or of the newest.

    Raises:
        HcpError: it is not there.
    """
    found = unpacked_releases()
    version = release or next(reversed(found), None)
    if version not in found:
        raise HcpError(f"{_place()}: found no transformer-engine-{version or 'X.Y.Z'}; wanted its wheel unpacked there")
    return found[version]


def _place() -> Path:
    return Path(os.environ.get("HCP_UPSTREAM") or Path.home() / ".cache/hcp-upstream")
