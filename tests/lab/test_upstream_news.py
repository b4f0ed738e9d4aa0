"""The list of upstream's fixes: which commits a person should read, out of a repository made here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

NEWS = "megatron/core/transformer/multi_token_prediction.py"


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        check=True,
        capture_output=True,
    )


def commit(folder: Path, name: str, subject: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(subject)
    git(folder, "add", "-A")
    git(folder, "commit", "-m", subject)


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A repository with a release, and five commits after it."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    git(folder, "init", "-b", "main")
    commit(folder, NEWS, "Fix before the release (#1)")
    git(folder, "tag", "v1.0")
    commit(folder, NEWS, "Fix MTP roll to communicate on the CP group (#6746)")
    commit(folder, NEWS, "Rename a variable (#2)")
    commit(folder, "megatron/core/inference/engine.py", "Fix an inference engine (#3)")
    commit(folder, "tests/unit_tests/test_context_parallel.py", "Fix a test of CP (#4)")
    commit(folder, "src/megatron/bridge/training/gpt_step.py", "cp: handle packed masks: fix #7 into r0.5 (#8)")
    return folder


@pytest.fixture
def script(root: Path, tmp_path: Path) -> Path:
    """A copy of the script, so that what it records is not the checkout's."""
    lab = tmp_path / "repo" / "lab"
    for name in ("__main__.py", "lib/program.py", "upstream_news.py"):
        (lab / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / "lab" / name, lab / name)
    (lab.parent / "src").symlink_to(root / "src")
    return lab / "upstream_news.py"


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(script.parent), script.stem, *arguments], capture_output=True, text=True)


@pytest.mark.slow
def test_fixes_of_context_parallel_files_are_listed_with_pull_request_and_rules(script: Path, upstream: Path) -> None:
    lines = run(script, f"megatron-lm={upstream}").stdout.splitlines()
    assert lines[0] == "megatron-lm main: 2 commits to read since v1.0"
    assert "#6746 Fix MTP roll to communicate on the CP group" in lines[1] and "KNOWN004" in lines[1]
    assert "#8 cp: handle packed masks" in lines[2] and "KNOWN009" in lines[2]
    assert len(lines) == 3


@pytest.mark.slow
def test_what_is_recorded_as_seen_is_not_listed_again(script: Path, upstream: Path) -> None:
    assert run(script, "--seen", f"megatron-lm={upstream}").returncode == 0
    recorded = yaml.safe_load(script.with_name("upstream_seen.yaml").read_text())
    head = (upstream / ".git" / "refs" / "heads" / "main").read_text().strip()
    assert recorded == {"megatron-lm": {"main": head}}
    assert run(script, f"megatron-lm={upstream}").stdout == f"megatron-lm main: 0 commits to read since {head[:12]}\n"


@pytest.mark.slow
def test_a_recorded_commit_that_is_not_there_is_said(script: Path, upstream: Path) -> None:
    script.with_name("upstream_seen.yaml").write_text(yaml.safe_dump({"megatron-lm": {"main": "0" * 40}}))
    said = run(script, f"megatron-lm={upstream}").stdout
    assert f"{'0' * 40} is not in {upstream}: nothing to compare with" in said


@pytest.mark.slow
def test_an_unknown_repository_is_refused_in_one_line(script: Path, upstream: Path) -> None:
    done = run(script, f"megatron={upstream}")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "wanted NAME=DIR of a folder, NAME one of megatron-lm" in done.stderr


def test_the_checkout_records_each_repository(root: Path) -> None:
    recorded = yaml.safe_load((root / "lab" / "upstream_seen.yaml").read_text())
    assert set(recorded) == {"megatron-lm", "megatron-bridge", "transformer-engine", "verl"}
    assert set(recorded["megatron-lm"]) == {"main", "dev"}
