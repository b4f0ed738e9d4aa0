"""Unpacks the upstream sources that tests read, one folder per version: `python tests/fetch_upstream.py`.

They go to $HCP_UPSTREAM (default ~/.cache/hcp-upstream) as `<dist>-<version>`, without dependencies and never into
the test environment: Transformer Engine's package without its libraries breaks `import megatron.core`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

VERSIONS = {
    "megatron-core": ("0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.0", "0.16.1", "0.17.1", "0.18.2", "0.19.2"),
    "megatron-bridge": ("0.3.0", "0.3.1", "0.6.2"),
    "verl": ("0.7.1", "0.8.0", "0.9.0", "0.9.1"),
    "transformer-engine": (
        "1.12.0",
        "1.13.0",
        "2.1.0",
        "2.4.0",
        "2.5.0",
        "2.8.0",
        "2.9.0",
        "2.10.0",
        "2.14.0",
        "2.15.0",
        "2.18.0",
        "2.19.0",
        "2.20.2",
    ),
}


_PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
_PIP += ["--only-binary=:all:", "--ignore-requires-python", "--no-compile"]
_PYTHONS = ("3.12", "3.11")
"""New wheels are for Python 3.12 alone, megatron-core before 0.14 has none for it. They are read, and none is run."""


def fetch(folder: Path, distribution: str, version: str) -> str:
    """Unpacks one release; a folder that exists is complete, because it is renamed into place at the end."""
    place = folder / f"{distribution}-{version}"
    if place.is_dir():
        return f"have {place.name}"
    partial = folder / f".partial-{place.name}"
    for python in _PYTHONS:
        shutil.rmtree(partial, ignore_errors=True)
        command = [*_PIP, "--python-version", python, "--target", str(partial), f"{distribution}=={version}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            partial.rename(place)
            return f"got {place.name}"
    raise SystemExit(f"pip could not unpack {distribution}=={version}:\n{done.stderr}")


def main() -> None:
    folder = Path(os.environ.get("HCP_UPSTREAM", Path.home() / ".cache" / "hcp-upstream"))
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [(distribution, version) for distribution, versions in VERSIONS.items() for version in versions]
    with ThreadPoolExecutor(3) as pool:
        for line in pool.map(lambda item: fetch(folder, *item), wanted):
            print(line, flush=True)


if __name__ == "__main__":
    main()
