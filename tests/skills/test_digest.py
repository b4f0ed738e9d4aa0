"""A step's digest covers what the step runs: imports, programs that it starts, and templates; and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import megatron_hcp
from megatron_hcp.skills.card import Step
from megatron_hcp.skills.record import closure_of

pytestmark = pytest.mark.xdist_group("records")  # what is parsed once serves test_record.py, too
PACKAGE = Path(megatron_hcp.__file__).parent


def names_of(*run: str) -> set[str]:
    """The closure of a step: files of the package by their path in it, others by folder and name."""
    files = closure_of(Step("s", run, "cpu", 1))
    ours = {path for path in files if path.is_relative_to(PACKAGE)}
    return {path.relative_to(PACKAGE).as_posix() for path in ours} | {
        f"{path.parent.name}/{path.name}" for path in files - ours
    }


@pytest.mark.slow
def test_programs_and_modules_that_are_started_count_like_imports() -> None:
    names = names_of("python", "checks/rendered_job.py")
    assert {
        "checks/slurm_standin.py",
        "checks/train_standin.py",
        "checks/comm_levels.py",
        "cli/check.py",
        "render/job.py",
        "job/leader.py",
        "templates/srun.sbatch.j2",
        "rules/topo/levels.py",
    } <= names


@pytest.mark.slow
def test_what_a_step_does_not_run_does_not_count() -> None:
    names = names_of("python", "checks/hcp_groups.py")
    assert "checks/hcp_groups.py" in names
    assert not [name for name in names if name.startswith(("templates/", "rules/", "render/", "triage/"))]
    assert not [name for name in names_of("hcp", "explain") if name.startswith(("templates/", "checks/"))]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what steps run, to be changed."""
    place = tmp_path_factory.mktemp("tree")
    for name in ("src", "checks", "templates", "skills", "schemas"):
        shutil.copytree(PACKAGE.parents[1] / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    return place


DIGEST = """
import sys
from megatron_hcp.skills.card import Step
from megatron_hcp.skills.record import digest_of
print(digest_of(Step("s", tuple(sys.argv[1:]), "cpu", 1)))
"""


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("run", "file", "counts"),
    [
        ("python checks/hcp_groups.py", "src/megatron_hcp/core/ranks.py", True),
        ("python checks/rendered_job.py", "src/megatron_hcp/job/leader.py", True),
        ("python checks/rendered_job.py", "templates/srun.sbatch.j2", True),
        ("hcp check -- --tensor-model-parallel-size 2", "src/megatron_hcp/rules/topo/levels.py", True),
        ("python checks/hcp_groups.py", "src/megatron_hcp/triage/read.py", False),
    ],
)
def test_a_change_of_one_file_that_a_step_runs_changes_its_digest(
    tree: Path, run: str, file: str, counts: bool
) -> None:
    def digest() -> str:
        command = [sys.executable, "-c", DIGEST, *run.split()]
        return subprocess.check_output(command, env={**os.environ, "PYTHONPATH": str(tree / "src")}, text=True)

    before = digest()
    with (tree / file).open("a", encoding="utf-8") as opened:
        opened.write("{# changed #}" if file.endswith(".j2") else "# changed\n")
    assert (digest() != before) == counts
