"""The error if `sbatch` does not accept a job: Slurm rejects it, or cannot be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.render.submit import ask


def sbatch(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """An sbatch that says so and fails."""
    program = folder / "sbatch"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\ncat >&2 <<'END'\n{said}\nEND\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    "said",
    [
        "resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
        "sbatch: error: fetch_config: DNS SRV lookup failed\nsbatch: error: _establish_config_source: failed to fetch "
        "config\nsbatch: fatal: Could not establish a configuration source",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "allocation failure: Unable to contact slurm controller (connect failure)",
        "sbatch: error: slurm_receive_msg: Connection refused",
    ],
)
def test_a_slurm_that_cannot_be_reached_does_not_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    sbatch(tmp_path, monkeypatch, said)
    with pytest.raises(HcpError) as error:
        ask("#!/bin/bash\n")
    text = str(error.value)
    assert text.startswith("sbatch --test-only: could not reach Slurm: ") and "rejects" not in text
    assert said.splitlines()[-1].rpartition("error: ")[2][-20:] in text or "failed to fetch config" in text


def test_a_slurm_that_answers_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sbatch(tmp_path, monkeypatch, "sbatch: error: invalid partition specified: nowhere")
    with pytest.raises(HcpError, match="Slurm rejects the job: invalid partition specified: nowhere; wanted"):
        ask("#!/bin/bash\n")
