"""The line by which a skill says how to install hcp installs it: from a checkout, with no index."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from megatron_hcp.skills.card import skill_dirs
from support.build_source import copy_source
from support.processes import HANG_S

ROOT = Path(__file__).resolve().parents[3]
_LINE = re.compile(r"(?m)^\s*(pip install .*)$")


def lines_of(folder: Path) -> list[str]:
    """The lines of a skill that install something."""
    texts = [folder / "SKILL.md", *sorted((folder / "references").glob("*.md"))]
    return [line for path in texts for line in _LINE.findall(path.read_text(encoding="utf-8"))]


LINES = sorted({line.partition("#")[0].strip() for folder in skill_dirs() for line in lines_of(folder)})


@pytest.mark.parametrize("folder", skill_dirs(), ids=lambda folder: folder.name)
def test_every_skill_says_how_to_install_hcp(folder: Path) -> None:
    assert lines_of(folder)


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_the_line_installs_hcp_from_a_checkout(tmp_path: Path, line: str) -> None:
    """As written, but for what the extras ask for: packages of others need an index."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install -c constraints.txt -e '.[test]'")
    checkout, installed = tmp_path / "megatron-hcp", tmp_path / "installed"
    copy_source(checkout)
    pip = tmp_path / "bin" / "pip"
    pip.parent.mkdir()
    offline = f"--no-deps --no-index --no-build-isolation --disable-pip-version-check --target '{installed}'"
    pip.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m pip \"$@\" {offline}\n")
    pip.chmod(0o755)
    environment = {**os.environ, "PATH": f"{pip.parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0 and "does not provide the extra" not in done.stderr, done.stderr
    said = subprocess.run(
        [sys.executable, "-m", "megatron_hcp", "skills", "install", "--dir", "mine"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert said.returncode == 0, said.stderr
    names = sorted(path.parent.name for path in (tmp_path / "mine").glob("*/SKILL.md"))
    assert names == [folder.name for folder in skill_dirs()]
