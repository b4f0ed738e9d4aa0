"""`hcp verify`: what somebody else's card may make it do, and how it ends."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.cards import skill_in, step

SRC = str(Path(__file__).resolve().parents[3] / "src")


def path_with(folder: Path) -> dict[str, str]:
    """The folder in which hcp runs is not on its path: a package is found where PYTHONPATH says."""
    return {"PYTHONPATH": os.pathsep.join((SRC, str(folder)))}


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", ["--list", "--dry-run"])
@pytest.mark.parametrize("package", ["spy.x", "spy"])
@pytest.mark.parametrize("trust", [(), ("--trust",)])
def test_listing_the_steps_of_a_card_imports_nothing(
    hcp, tmp_path: Path, mode: str, package: str, trust: tuple[str, ...]
) -> None:
    """A module that leaves a file behind when it is imported lies where Python finds it."""
    (tmp_path / "here").mkdir()
    (tmp_path / "spy").mkdir()
    (tmp_path / "spy" / "__init__.py").write_text("open('was-imported', 'w')\n")
    skill = skill_in(tmp_path, step(needs={"packages": [package]}))
    done = hcp("verify", mode, *trust, skill, cwd=tmp_path / "here", env=path_with(tmp_path))
    assert not (tmp_path / "here" / "was-imported").exists()
    assert done.returncode == (2 if "." in package else 0), done.stderr


def test_running_a_trusted_step_looks_its_packages_up_without_importing_them(hcp, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "spy.py").write_text("open('was-imported', 'w')\n")
    skill = skill_in(tmp_path, step(needs={"packages": ["spy"]}))
    done = hcp("verify", "--trust", skill, cwd=tmp_path / "here", env=path_with(tmp_path))
    assert (done.returncode, (tmp_path / "here" / "was-imported").exists()) == (0, False), done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_nothing_is_looked_up_for_a_card_that_is_not_trusted(hcp, tmp_path: Path) -> None:
    """What a machine has is nobody else's business; and `nvidia-smi` on the PATH is a program that would run."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n: > was-run\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    skill = skill_in(tmp_path, step(needs={"gpus": 1, "programs": ["sh"], "packages": ["click"]}))
    done = hcp("verify", "--list", "--format", "json", skill, cwd=tmp_path, env={"PATH": str(tmp_path)})
    assert json.loads(done.stdout)["steps"][0]["skipped"] == "not looked up: the card is not trusted (--trust)"
    assert not (tmp_path / "was-run").exists()


@pytest.mark.sample(5)
@pytest.mark.parametrize("package", ["", ".x", "nope.x", "x.", "a b", "-x", "x;y", "../x", "x" * 101, "x\n", "\u202e"])
def test_a_package_is_named_by_one_plain_word(hcp, tmp_path: Path, package: str) -> None:
    done = hcp("verify", "--list", skill_in(tmp_path, step(needs={"packages": [package]})))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and "needs.packages" in done.stderr, done.stderr
