"""Rendered jobs, as text and on the test cluster."""

import pytest

from support.jobs import Job, Programs
from support.sbatch import BODY, HEAD


@pytest.fixture
def job(slurm, hcp, root, tmp_path):
    made = Job(slurm, hcp, root, tmp_path)
    yield made
    if hasattr(made, "id"):
        slurm.run("scancel", str(made.id), check=False)


@pytest.fixture
def programs(tmp_path, slurm):
    return Programs(tmp_path / "bin", slurm.env["PATH"])


@pytest.fixture
def rendered(hcp, tmp_path):
    def render(*words, text=HEAD + BODY, files=()):
        (tmp_path / "train.sbatch").write_text(text)
        for name, content in files:
            (tmp_path / name).write_text(content)
        return hcp("render", "train.sbatch", *words, cwd=tmp_path)

    return render
