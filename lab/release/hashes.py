"""Writes constraints.hashed.txt: `python lab release/hashes PYTHON…`, an interpreter of each release that hcp supports.

Asks pip which wheels it would install for the base and `[mcp]` at the versions of constraints.txt, on each of those
Pythons and each platform below, and takes the SHA-256 of each file. Nothing is installed. Needs network access.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from program import parser_of

from support.requirements import FOR_USERS, HASHED, PINS

PLATFORMS = (
    ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    ("macosx_11_0_arm64", "macosx_12_0_arm64"),
)
HEAD = """\
# What users install, the base and [mcp], at the versions of constraints.txt, with the SHA-256 of each wheel:
#     pip install --require-hashes --no-deps -r constraints.hashed.txt && pip install --no-deps WHEEL
# `python lab release/hashes` writes it, for Python 3.10 to 3.13 on Linux (x86-64, Arm) and macOS (Arm).
"""


def wheels(python: str, platform: tuple[str, ...], requirements: list[str]) -> list[tuple[str, str, str]]:
    """(name, version, SHA-256) of each wheel that pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        words = [python, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report)]
        words += ["--only-binary=:all:", "--target", folder, "-c", str(PINS), *requirements]
        subprocess.run([*words, *(f"--platform={name}" for name in platform)], check=True)
        found = json.loads(report.read_text("utf-8"))["install"]
    return [
        (
            canonicalize_name(one["metadata"]["name"]),
            one["metadata"]["version"],
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in found
    ]


def text_of(hashes: dict[tuple[str, str], set[str]]) -> str:
    """The file: the lines of constraints.txt that are wanted, with their hashes."""
    lines = []
    for line in PINS.read_text("utf-8").splitlines():
        pin = Requirement(line) if line and not line.startswith("#") else None
        key = (canonicalize_name(pin.name), str(pin.specifier).removeprefix("==")) if pin else ("", "")
        if key in hashes:
            lines.append(" \\\n    ".join([line, *(f"--hash=sha256:{value}" for value in sorted(hashes[key]))]))
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    hashes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for python in parser.parse_args().pythons:
        for platform in PLATFORMS:
            for name, version, value in wheels(python, platform, [str(each) for each in FOR_USERS]):
                hashes[name, version].add(value)
    HASHED.write_text(text_of(hashes), encoding="utf-8")
    print(f"{HASHED.name}: {len(hashes)} versions, {sum(map(len, hashes.values()))} wheels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
