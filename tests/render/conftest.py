"""Rendered jobs on the test cluster."""

import pytest

from support.jobs import Job, Programs


@pytest.fixture
def job(slurm, hcp, root, tmp_path):
    made = Job(slurm, hcp, root, tmp_path)
    yield made
    if hasattr(made, "id"):
        slurm.run("scancel", str(made.id), check=False)


@pytest.fixture
def programs(tmp_path, slurm):
    return Programs(tmp_path / "bin", slurm.env["PATH"])
