"""A step's digest covers what the step runs: imports, programs that it starts, and templates; and nothing else."""

from __future__ import annotations

from pathlib import Path

import megatron_hcp
from megatron_hcp.skills.card import Step
from megatron_hcp.skills.record import closure_of

PACKAGE = Path(megatron_hcp.__file__).parent


def names_of(*run: str) -> set[str]:
    """The closure of a step: files of the package by their path in it, others by folder and name."""
    files = closure_of(Step("s", run, "cpu", 1))
    ours = {path for path in files if path.is_relative_to(PACKAGE)}
    return {path.relative_to(PACKAGE).as_posix() for path in ours} | {
        f"{path.parent.name}/{path.name}" for path in files - ours
    }


def test_programs_and_modules_that_are_started_count_like_imports() -> None:
    names = names_of("python", "checks/rendered_job.py")
    assert {
        "checks/slurm_standin.py",
        "checks/train_standin.py",
        "checks/comm_levels.py",
        "cli/check.py",
        "render/job.py",
        "render/preflight.py",
        "templates/srun.sbatch.j2",
        "rules/topo/levels.py",
    } <= names


def test_what_a_step_does_not_run_does_not_count() -> None:
    names = names_of("python", "checks/hcp_groups.py")
    assert "checks/hcp_groups.py" in names
    assert not [name for name in names if name.startswith(("templates/", "rules/", "render/", "triage/"))]
    assert not [name for name in names_of("hcp", "check") if name.startswith(("templates/", "checks/"))]
