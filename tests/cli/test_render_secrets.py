"""`hcp render` writes no credential into a script."""

from __future__ import annotations

from pathlib import Path

import pytest

SITE = "gpus_per_node: 8\narch: sm90\ntime: 4:00:00\n"
WORDS = ("--context-parallel-size", "2", "--seq-length", "1024", "--exit-signal-handler")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "secret",
    [("--wandb-api-key", "hunter2"), ("--data-path", "https://user:hunter2@host/data")],
)
def test_a_launch_with_a_credential_is_refused(hcp, tmp_path: Path, secret: tuple[str, ...]) -> None:
    (tmp_path / "site.yaml").write_text(SITE)
    render = ("render", "--start", "srun", "--nodes", "1", "--site", "site.yaml", "--program", "pretrain_gpt.py")
    assert hcp(*render, "--", *WORDS, cwd=tmp_path).returncode == 0
    done = hcp(*render, "-o", "job.sbatch", "--", *WORDS, *secret, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hcp: found a credential in line ") and done.stderr.count("\n") == 1
    assert "hunter2" not in done.stderr
    assert not (tmp_path / "job.sbatch").exists()
