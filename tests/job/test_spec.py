"""A job's spec, whatever it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.job.spec import read_spec

SPEC = {"schema": "hcp.job/1", "start": "srun", "nodes": 1, "gpus_per_node": 8}


@pytest.mark.parametrize("text", ["[" * 100_000, "", "{", "9" * 5000])
def test_what_is_no_json_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.json").write_text(text)
    with pytest.raises(HcpError, match="found no JSON; wanted hcp"):
        read_spec(str(tmp_path / "job.json"))


@pytest.mark.parametrize(
    "ranks",
    [[], ["--tp=2"], ["--gpus-per-node=0"], ["--gpus-per-node=8", "--hcp=0,2"], ["--gpus-per-node=8", "--cp=x"]],
)
def test_sizes_that_place_no_rank_are_one_line(tmp_path: Path, ranks: list[str]) -> None:
    (tmp_path / "job.json").write_text(json.dumps(SPEC | {"ranks": ranks}))
    with pytest.raises(HcpError, match="wanted words such as --gpus-per-node=8 and --hcp=4,2"):
        read_spec(str(tmp_path / "job.json"))


def test_the_sizes_that_render_writes_are_read(tmp_path: Path) -> None:
    ranks = ["--gpus-per-node=8", "--tp=2", "--hcp=4,2", "--order=tp-cp-ep-dp-pp", "--etp=1"]
    (tmp_path / "job.json").write_text(json.dumps(SPEC | {"ranks": ranks}))
    assert read_spec(str(tmp_path / "job.json")).ranks == ranks
