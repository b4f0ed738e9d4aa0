"""A job's claim on a folder of checkpoints in which others can write too."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from megatron_hcp.job.lock import CheckpointLock

OTHERS = "'; rm -rf /\\n\\u001b[2J"


@pytest.fixture
def lock(tmp_path: Path) -> CheckpointLock:
    return CheckpointLock(tmp_path / "checkpoints", "7", watch_s=0.02)


@pytest.mark.parametrize("name", [".hcp-job-7.json", ".hcp-job.json"])
def test_a_claim_is_never_written_through_a_link(lock: CheckpointLock, tmp_path: Path, name: str) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    lock.path.parent.mkdir()
    (lock.path.parent / name).symlink_to(mine)
    assert lock.take() == ""
    assert mine.read_text() == "mine" and json.loads(lock.path.read_text()) == {"job": "7"}


@pytest.mark.parametrize(
    "said", [f'{{"job": "{OTHERS}"}}', "[" * 100_000, '{"job": ' + "9" * 5000 + "}", "[]", "\udcff"]
)
def test_who_holds_a_claim_is_said_in_characters_that_do_nothing(lock: CheckpointLock, said: str) -> None:
    lock.path.parent.mkdir()
    lock.path.write_bytes(said.encode("utf-8", "surrogateescape"))
    assert lock._holder().isprintable()
    assert lock.take() == "", "nobody renews it"


def test_a_pipe_in_the_place_of_a_claim_is_not_waited_for(lock: CheckpointLock) -> None:
    lock.path.parent.mkdir()
    os.mkfifo(lock.path)
    assert lock.take() == ""
