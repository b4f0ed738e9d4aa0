"""A copy of what a wheel is built from."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.requirements import ROOT


def copy_source(folder: Path) -> None:
    """Makes the folder, with the files that a build reads."""
    folder.mkdir(parents=True)
    for name in ("src", "skills", "checks", "templates", "schemas"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".ci").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore", ".ci/deflated_wheel.py"):
        shutil.copyfile(ROOT / name, folder / name)
