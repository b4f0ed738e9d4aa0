"""`hcp render` in a repository with `.hcp.yaml`: the job's own check gets the facts that the launch uses, by name."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Hcp = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def repository(root: Path, tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    shutil.copy(root / "examples" / "mlm_hcp.sbatch", tmp_path)
    (tmp_path / "site.yaml").write_text('account: team7\nfacts: {te: "2.14"}\n')
    (tmp_path / ".hcp.yaml").write_text(
        'facts: {mcore: "0.16.1", arch: sm90, seq_length: 4096}\nsite: site.yaml\npaths:\n'
        "  other: {facts: {einops: true}}\n"
    )
    return tmp_path


def assumed(script: str) -> set[str]:
    """The facts that the rendered job states for its own check."""
    (line,) = re.findall(r'"check": (\[.*\])', script)
    return {word.removeprefix("--assume=") for word in json.loads(line) if word.startswith("--assume=")}


def test_the_jobs_check_gets_what_the_repository_states_and_the_launch_does_not(hcp: Hcp, repository: Path) -> None:
    done = hcp("render", "mlm_hcp.sbatch", cwd=repository)
    assert assumed(done.stdout) == {"arch=sm90", "mcore=0.16.1", "te=2.14"}  # the launch states its seq_length
    assert "#SBATCH --account=team7" in done.stdout


def test_an_option_and_a_site_of_ones_own_win(hcp: Hcp, repository: Path) -> None:
    (repository / "mine.yaml").write_text("account: other\n")
    done = hcp("render", "mlm_hcp.sbatch", "--assume", "mcore=0.15.3", "--site", "mine.yaml", cwd=repository)
    assert "mcore=0.15.3" in assumed(done.stdout) and "mcore=0.16.1" not in assumed(done.stdout)
    assert "#SBATCH --account=other" in done.stdout


def test_isolated_takes_nothing_from_it(hcp: Hcp, repository: Path) -> None:
    done = hcp("render", "mlm_hcp.sbatch", "--isolated", cwd=repository)
    assert assumed(done.stdout) == set() and "team7" not in done.stdout
