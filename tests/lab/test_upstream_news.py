"""The list of upstream's fixes: which commits a person should read, out of a repository made here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
def table(upstream: Path, tmp_path: Path) -> Path:
    """What was read of it: its release."""
    seen = subprocess.run(["git", "-C", str(upstream), "rev-parse", "v1.0"], capture_output=True, text=True).stdout
    table = tmp_path / "last_read.txt"
    table.write_text(f"# A comment.\nmcore megatron-lm main 1.0.0 {seen.strip()} 2026-01-02 2026-01-03\n")
    return table


def run(root: Path, table: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "lab"), "upstream_news", "--table", str(table), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_fixes_of_context_parallel_files_are_listed_with_pull_request_and_rules(
    root: Path, table: Path, upstream: Path
) -> None:
    before = table.read_text()
    lines = run(root, table, f"megatron-lm={upstream}").stdout.splitlines()
    assert lines[0] == f"megatron-lm main: 2 commits to read since {before.split()[7][:12]}"
    assert "#6746 Fix MTP roll to communicate on the CP group" in lines[1] and "KNOWN004" in lines[1]
    assert "#8 cp: handle packed masks" in lines[2] and "KNOWN009" in lines[2]
    assert len(lines) == 3 and table.read_text() == before


@pytest.mark.slow
def test_what_is_recorded_as_seen_is_not_listed_again(root: Path, table: Path, upstream: Path) -> None:
    commit(upstream, "megatron/core/package_info.py", "MAJOR = 1\nMINOR = 2\nPATCH = 3\n")
    assert run(root, table, "--seen", f"megatron-lm={upstream}").returncode == 0
    head = (upstream / ".git" / "refs" / "heads" / "main").read_text().strip()
    comment, row = table.read_text().splitlines()
    assert comment == "# A comment." and row.startswith(f"mcore megatron-lm main 1.2.3 {head} ")
    assert "2026-01-0" not in row
    assert run(root, table, f"megatron-lm={upstream}").stdout == (
        f"megatron-lm main: 0 commits to read since {head[:12]}\n"
    )


@pytest.mark.slow
def test_a_recorded_commit_that_is_not_there_is_said(root: Path, table: Path, upstream: Path) -> None:
    table.write_text(f"mcore megatron-lm main 1.0.0 {'0' * 40} 2026-01-02 2026-01-03\n")
    said = run(root, table, f"megatron-lm={upstream}").stdout
    assert f"{'0' * 12} is not in {upstream}: its newest tag is taken" in said and "since v1.0" in said


@pytest.mark.slow
def test_an_unknown_repository_is_refused_in_one_line(root: Path, table: Path, upstream: Path) -> None:
    done = run(root, table, f"megatron={upstream}")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "wanted NAME=DIR of a folder, NAME one of megatron-lm" in done.stderr
